"""The README of the litmus programs, written from the registry.

cd tests/interpose && python -m litmus.table
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from .registry import Expected, Program, load

README = Path(__file__).with_name("README.md")

HEAD = """# Litmus programs in plain torch

Written by `python -m litmus.table` (in `tests/interpose`) from the programs' own statements; do not
edit.

Each program is an ordinary function that a user of PyTorch could have written; it knows nothing of
racegate but `observe(name, value)`, which marks what must not depend on the schedule. Programs of
one pair differ in what repairs the race. *racy*: one run holds a pair of conflicting accesses
without an order. *observable*: some order of operations (kernels, copies or halves of them, nodes
of a graph, host accesses) that the program's own edges allow changes an observation.

`python reports/interposer/litmus_gpu.py` runs them on a real GPU and under PyTorch's own
stream sanitizer.
"""


def render(programs: dict[str, Program]) -> str:
    """The README: a line of counts, then one table per theme."""
    counts = Counter(program.expected for program in programs.values())
    observable = sum(program.observable for program in programs.values())
    pairs = {program.pair for program in programs.values()}
    total = (
        f"{len(programs)} programs in {len(pairs)} pairs: {counts[Expected.RACY]} racy "
        f"({observable} observable), {counts[Expected.SILENT]} silent.\n"
    )
    themes = sorted({program.theme for program in programs.values()})
    return "\n".join([HEAD, total, *(_section(theme, programs) for theme in themes)])


def _section(theme: str, programs: dict[str, Program]) -> str:
    rows = [
        f"| `{program.name}` | {program.pair} | {program.expected.value} | "
        f"{'yes' if program.observable else ''} | {program.summary} |"
        for program in programs.values()
        if program.theme == theme
    ]
    head = ["| program | pair | expected | observable | why |", "| --- | --- | --- | --- | --- |"]
    return "\n".join([f"## {theme}\n", *head, *rows, ""])


if __name__ == "__main__":
    README.write_text(render(load()))
