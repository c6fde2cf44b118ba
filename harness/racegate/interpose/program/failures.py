"""Errors that a program meets and did not make: those of racegate itself."""

from __future__ import annotations

import sys
from pathlib import Path
from types import TracebackType

_OURS = str(Path(__file__).parents[2])
# What torch's kernels, which are called from here too, never raise.
_MISTAKES = (AssertionError, AttributeError, KeyError, NameError)


def is_ours(error: BaseException) -> bool:
    """Whether racegate failed, and not the program: it says so itself, or made a mistake in code of
    its own.
    """
    if str(error).startswith("racegate:"):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    innermost = trace.tb_frame.f_code.co_filename if trace is not None else ""
    return isinstance(error, _MISTAKES) and innermost.startswith(_OURS)


def missing_for(error: BaseException | None) -> str:
    """What this machine lacks that the program's compiled regions need; empty if it is not that."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # who raises a cause again makes a circle
        seen.add(id(error))
        if type(error).__name__ == "InvalidCxxCompiler":
            return (
                "a region of torch.compile with a part on the CPU (it needs a C++ compiler, g++ or "
                "the one that CXX names, and there is none; --compile eager needs none)"
            )
        error = error.__cause__ or error.__context__
    return ""


def words_for(error: BaseException, where: str) -> str:
    """What is said of such an error. where: in which thread it was met"""
    return f"{type(error).__name__} in {where} (racegate itself failed): {error}"


def code_of_exit(exit: SystemExit) -> int:
    """What the process would end with: of a number, its last eight bits, as Python and the kernel
    have it. 256 is 0.
    """
    if exit.code is None:
        return 0
    if isinstance(exit.code, int):
        return int(exit.code) & 0xFF
    print(exit.code, file=sys.stderr)
    return 1


def program_part(trace: TracebackType | None) -> TracebackType | None:
    """Without the frames of runpy, and of what runs the program."""
    while trace is not None and trace.tb_next is not None:
        name = trace.tb_frame.f_code.co_filename
        if not name.startswith(_OURS) and "runpy" not in name:
            break
        trace = trace.tb_next
    return trace
