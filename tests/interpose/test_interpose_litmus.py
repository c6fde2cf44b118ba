"""One pair of litmus programs of each theme; `litmus_all.py` judges all of them."""

from __future__ import annotations

from pathlib import Path

from cuda_torch import needs_litmus
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import Program, open_device

HERE = Path(__file__).parent
# theme: (racy, repaired)
PAIRS = {
    "allocator": ("missing_record_stream", "record_stream"),
    "autograd": ("gradient_hook_without_wait", "gradient_hook_with_wait"),
    "downloads": ("download_read_at_once", "download_read_after_event"),
    "events": ("event_too_early", "event_in_place"),
    "graphs": ("graph_input_rewritten", "graph_input_rewritten_after_replay"),
    "host_views": ("ctypes_read", "ctypes_read_after_event"),
    "threads": ("lock_around_issue", "lock_around_upload"),
    "zero_copy": ("mapped_input_rewritten", "triton_masked_slices"),
}


@needs_litmus
def test_one_pair_of_each_theme_is_right_and_the_racy_one_diverges() -> None:
    with open_device() as device:
        for theme, pair in PAIRS.items():
            for name, is_racy in zip(pair, (True, False), strict=True):
                program = Program((str(HERE / "litmus_one.py"), theme, name), timeout_s=120)
                found = judge_on(device, program, explores=True, runs_max=8, is_quiet=True)
                assert bool(found.outcome.findings) is is_racy, name
                judged = found.search.judged if found.search else ()
                assert any(j.verdict == "DIVERGENT" for j in judged) is is_racy, name
