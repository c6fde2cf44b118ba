"""The interposer: an unmodified PyTorch program on a virtual CUDA device that records everything.

From the bottom: `order/` judges, `device/` is the CUDA runtime on host memory, `kernels/` computes,
`program/` watches the host, `gpu/` does all of it on a real GPU; the modules here build, launch,
search and report; `workflow/` has what a user keeps between runs. Of racegate it knows words, files
and exit codes (`history`, `scenario`). A program may call `recording`, `observe`, `agree` and
`declare_copies`.
"""

from __future__ import annotations

from racegate.interpose.surface import Recording, agree, declare_copies, observe, recording

__all__ = ["Recording", "agree", "declare_copies", "observe", "recording"]
