"""Tables of verdicts and limits: cells with a symbol and a word, coloured beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from racegate.jobs.versions.cells import CellReport
from racegate.report.measured.gpu import FigureLimit
from racegate.report.site.charts import Tone
from racegate.report.site.shapes import ProgramFile

PageOfCell = Callable[[CellReport, str], str]

_TONES = {
    "PROVED": Tone.GOOD,
    "no conflict": Tone.GOOD,
    "BENIGN": Tone.HALF,
    "DIVERGENT": Tone.BAD,
    "CONFLICT": Tone.BAD,
}


class GridCell(msgspec.Struct, frozen=True, kw_only=True):
    """tone: None for one without a colour; title: more than fits

    href: a public address; page: of the site, where more of it stands
    """

    text: str
    tone: Tone | None = None
    title: str = ""
    href: str = ""
    page: str = ""


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A table. rows: the first cell is what the row is of; note: a paragraph below its title

    file: where it is from, a file or a pattern
    """

    title: str
    note: str
    file: str
    columns: tuple[str, ...]
    rows: tuple[tuple[GridCell, ...], ...]


def cells_grid(name: str, cells: Iterable[CellReport], file: str, page_of: PageOfCell) -> Grid:
    """Releases of an engine down, scenarios across. name: the engine's

    page_of: where more of a wrong cell stands, by the cell and its scenario
    """
    runnable = [cell for cell in cells if cell.scenarios]
    names = sorted({name for cell in runnable for name in cell.scenarios})
    ordered = sorted(runnable, key=lambda cell: (cell.runner, cell.mode, _release(cell.release)))
    return Grid(
        title=f"Unmodified {name} releases",
        note="Each cell: the verdict, and the runs under holds that it took. DIVERGENT: a landing, "
        "or the run in which nothing is held, comes to a wrong value. BENIGN: every landing of "
        "what races was tried and no observed value changed. An empty cell was not run. A "
        "DIVERGENT cell leads to what went wrong, the landing that does it, and the command that "
        "replays it.",
        file=file,
        columns=("release", *(name.replace("_", " ") for name in names)),
        rows=tuple(
            (
                GridCell(text=cell.title),
                *(_judged(cell, name, page_of) for name in names),
            )
            for cell in ordered
        ),
    )


def _judged(cell: CellReport, scenario: str, page_of: PageOfCell) -> GridCell:
    judged = cell.scenarios.get(scenario)
    if judged is None:
        return GridCell(text="")
    runs = f" {judged.runs}" if judged.runs else ""
    shown = verdict_cell(judged.verdict, f"{judged.verdict}{runs}", "; ".join(judged.wrong))
    return msgspec.structs.replace(shown, page=page_of(cell, scenario))


def verdict_cell(verdict: str, text: str, title: str = "") -> GridCell:
    """A verdict with its symbol."""
    tone = _TONES.get(verdict, Tone.QUIET)
    return GridCell(text=f"{tone.symbol} {text}", tone=tone, title=title)


def _release(text: str) -> tuple[tuple[int, str], ...]:
    """Versions in their order: numbers as numbers."""
    return tuple((int(part), "") if part.isdigit() else (0, part) for part in text.split("."))


def programs_grid(programs: Iterable[ProgramFile], file: str) -> Grid:
    """Programs that nobody here wrote."""
    return Grid(
        title="Programs that nobody here wrote",
        note="Each untouched, in the release that has the defect and in the one that repairs it.",
        file=file,
        columns=("program", "releases", "expected", "verdict", "runs", "CPU s", "public report"),
        rows=tuple(
            (
                GridCell(text=one.name),
                GridCell(text=", ".join(f"{n} {v}" for n, v in one.releases.items()) or "torch"),
                GridCell(text=one.expected),
                verdict_cell(one.verdict, one.verdict),
                GridCell(text=str(one.runs)),
                GridCell(text=f"{one.cpu_s:.1f}"),
                GridCell(text=_short(one.public), href=one.public),
            )
            for one in sorted(programs, key=lambda one: one.name)
        ),
    )


def _short(address: str) -> str:
    return address.removeprefix("https://github.com/").replace("/pull/", "#")


def limits_grid(targets: Iterable[FigureLimit], file: str) -> Grid:
    """Figures of a GPU beside their limits."""
    return Grid(
        title="On a GPU",
        note="What has to be reached, and what was measured.",
        file=file,
        columns=("figure", "measured (limit)", "met"),
        rows=tuple(
            (
                GridCell(text=target.name),
                GridCell(text=target.shown),
                _limit(target),
            )
            for target in targets
        ),
    )


def _limit(target: FigureLimit) -> GridCell:
    tone, word = (Tone.GOOD, "met") if target.is_met else (Tone.BAD, "missed")
    return GridCell(text=f"{tone.symbol} {word}", tone=tone)
