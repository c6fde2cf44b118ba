"""Version after version: set up, judged, kept. What is kept already is not run again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from racegate.interpose.errors import BadInput
from racegate.jobs.versions.cells import (
    CellReport,
    ScenarioReport,
    first_line,
    is_done,
    read_cell,
    write_cell,
)
from racegate.targets.common.setup.progress import Say

Keep = Callable[[CellReport], None]


class History(Protocol):
    """What has versions: a target of which each version is set up and judged alike."""

    @property
    def names(self) -> tuple[str, ...]:
        """What is judged in each version: scenarios, or one program."""
        ...

    def cells(self, version: str) -> Sequence[CellReport]:
        """The ways to run a version, with nothing in them yet."""
        ...

    def set_up(self, version: str, say: Say) -> None:
        """Makes what a version is run in, or finds it there. Raises BadInput."""
        ...

    def judge(self, cell: CellReport, names: Sequence[str], keep: Keep) -> None:
        """Judges scenarios in a cell, and hands the cell over after each. Raises BadInput."""
        ...

    def remove(self, version: str) -> None:
        """Deletes what `set_up` made, if it made it."""
        ...


def run_history(history: History, versions: Sequence[str], folder: Path, say: Say) -> None:
    """Judges what is missing of each version; the folder has a file for each cell.

    A version that cannot be set up, and a cell that cannot be started, say why in their files.

    Args:
        history: the target.
        versions: in the order in which they are run.
        folder: of the files; what is there is kept.
        say: is told what is done.

    Raises:
        BadInput: a file in the folder is no cell.
    """
    for version in versions:
        cells = [kept(one, folder) for one in history.cells(version)]
        todo = [cell for cell in cells if not is_done(cell, history.names)]
        if not todo:
            say(f"{version}: kept")
            continue
        try:
            history.set_up(version, say)
        except BadInput as error:
            for cell in todo:
                _cannot(cell, str(error), folder, say)
            continue
        for cell in todo:
            _judge(history, cell, folder, say)
        history.remove(version)


def kept(cell: CellReport, folder: Path) -> CellReport:
    """What is kept of a cell, or the empty one. Raises BadInput."""
    return read_cell(folder / cell.file) or cell


def _judge(history: History, cell: CellReport, folder: Path, say: Say) -> None:
    last = cell

    def keep(now: CellReport) -> None:
        nonlocal last
        for name in now.scenarios.keys() - last.scenarios.keys():
            say(line_of(now, name))
        last = now
        write_cell(folder, now)

    todo = [name for name in history.names if name not in cell.scenarios]
    try:
        history.judge(cell, todo, keep)
    except BadInput as error:
        _cannot(last, str(error), folder, say)


def _cannot(cell: CellReport, why: str, folder: Path, say: Say) -> None:
    cannot = msgspec.structs.replace(cell, cannot=first_line(why))
    say(f"{' '.join((cell.release, *cell.settings))}: {cannot.cannot}")
    write_cell(folder, cannot)


def line_of(cell: CellReport, name: str) -> str:
    """One scenario of a cell in a line, for those who wait."""
    one: ScenarioReport = cell.scenarios[name]
    where = " ".join((cell.release, *cell.settings, name))
    return f"{where}: {one.verdict}, {one.runs} runs, {one.cpu_s} CPU s {one.message}".rstrip()
