"""The truth table of the accepted-count designs, as Markdown: the same on a terminal and in the
committed page.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from racegate.measure.evaluation.truth_table import (
    CellOutcome,
    CountLanding,
    Landed,
    Motion,
    TruthCell,
)

_WORDS = {
    Landed.EXCLUDED: "right: an edge excludes it",
    Landed.NO_COPY: "right: no copy",
}


def as_markdown(cells: Sequence[TruthCell]) -> str:
    """One table per cache mode: designs and landings down, motions across."""
    modes = dict.fromkeys(cell.cache_mode for cell in cells)
    return "\n\n".join(
        f"Cache mode `{mode}`:\n\n" + _table([c for c in cells if c.cache_mode == mode])
        for mode in modes
    )


def _table(cells: Sequence[TruthCell]) -> str:
    lines = [
        _line(("design", "the counts land", *Motion, "flagged as a conflict")),
        _line(["---"] * (3 + len(Motion))),
    ]
    for design in dict.fromkeys(cell.design for cell in cells):
        for landing in CountLanding:
            row = [c for c in cells if (c.design, c.landing) == (design, landing)]
            flagged = "yes" if all(cell.is_flagged for cell in row) else "no"
            lines.append(_line((f"`{design}`", landing, *map(_words, row), flagged)))
    return "\n".join(lines)


def _words(cell: TruthCell) -> str:
    if cell.outcome is CellOutcome.RIGHT:
        return _WORDS.get(cell.landed, "right")
    if cell.outcome is CellOutcome.RAISED:
        return "**raised**"
    return f"**wrong**: {cell.request} takes {cell.actual}, not {cell.expected}"


def _line(fields: Iterable[str]) -> str:
    return f"| {' | '.join(fields)} |"
