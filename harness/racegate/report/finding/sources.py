"""The sources of a program on a page: the lines that change, or those of the two places."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from racegate.history.finding import Frame, Race
from racegate.report.finding.pictured import SourceLine
from racegate.scenario.untrusted.reading import ReadError, read_text
from racegate.targets.program.repair import SOURCE_BYTES_MAX, from_here, repair_of

LINES_MAX = 24
_AROUND = 1
_ROLES = {"+": "added", "-": "removed", "@": "hunk"}


def source_of(race: Race) -> tuple[SourceLine, ...]:
    """The missing edge as a change; where it cannot be written so, the lines of the two places."""
    if change := repair_of(race):
        lines = [SourceLine(text=line, role=_role(line)) for line in change.splitlines()]
    else:
        frames = dict.fromkeys(side.frames[0] for side in (race.first, race.second) if side.frames)
        lines = [line for frame in frames for line in _lines_of(frame)]
    if len(lines) > LINES_MAX:
        rest = SourceLine(text=f"... {len(lines) - LINES_MAX} more lines", role="hunk")
        lines = [*lines[:LINES_MAX], rest]
    return tuple(lines)


def _role(line: str) -> str:
    return "hunk" if line.startswith(("+++", "---")) else _ROLES.get(line[:1], "")


def _lines_of(frame: Frame) -> Iterator[SourceLine]:
    """With what stands around; nothing where the file cannot be read, or is shorter."""
    file, number, _ = frame
    try:
        text = read_text(Path(file), SOURCE_BYTES_MAX).splitlines()
    except ReadError:
        return
    if not 1 <= number <= len(text):
        return
    yield SourceLine(text=f"{from_here(file)}:{number}", role="hunk")
    first = max(1, number - _AROUND)
    for at in range(first, min(len(text), number + _AROUND) + 1):
        mark = ">" if at == number else " "
        yield SourceLine(text=f"{mark} {text[at - 1]}", role="place" if at == number else "")
