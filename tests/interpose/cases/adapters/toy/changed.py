"""The adapter of the guide's toy, with a few of its lines changed."""

from __future__ import annotations

import sys
from pathlib import Path

TOY = Path(__file__).parents[5] / "docs" / "examples" / "toy_adapter.py"


def serve(*changes: tuple[str, str], offers: str = "plain observations holds owners") -> None:
    """Runs it. changes: what stands in it, and what is to stand there instead"""
    source = TOY.read_text(encoding="utf-8")
    for before, after in changes:
        assert source.count(before) == 1, before
        source = source.replace(before, after)
    sys.path.insert(0, str(TOY.parent))
    sys.argv = [str(TOY), *offers.split()]
    exec(compile(source, str(TOY), "exec"), {"__name__": "__main__"})
