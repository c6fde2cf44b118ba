"""The release table of an engine, and a page for each wrong cell: what went wrong, the landing that
does it drawn from what the cell keeps, and the command that shows it again.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator
from shlex import quote

from racegate.history.schedule import FORCED, Hold
from racegate.history.trace import HOST
from racegate.jobs.versions.cells import CellConflict, CellReport, ScenarioReport
from racegate.report.cause.pair import Relation
from racegate.report.finding.pictured import Fact, PicturedFinding, PicturedSide
from racegate.report.site.boards import Board, Figure
from racegate.report.site.grids import cells_grid
from racegate.report.site.reports import Reports
from racegate.report.timeline.model import Bar, Role, Timeline
from racegate.targets.common.search import Effect

HARMFUL = (Effect.WRONG, Effect.DIVERGENT)
_LANES = ("the host", "the copy's stream")


def engine_board(reports: Reports, folder: str, name: str) -> Iterator[Board]:
    """The release table of an engine, and a page for each wrong cell. name: of it, in words"""
    pattern, page = f"{folder}/cells/*.json", f"{folder}/index.html"
    cells = [reports.read(file, CellReport) for file in reports.matching(pattern)]
    ran = {cell.release for cell in cells if cell.scenarios}
    if not ran:
        return
    wrong = {cell.release for cell in cells if any(one.is_wrong for one in cell.scenarios.values())}
    figure = Figure(
        value=f"{len(wrong)} of {len(ran)}",
        label=f"unmodified {name} releases come to a wrong value in some scenario and landing",
        page=page,
        file=pattern,
    )
    shown = dict(wrong_cells(folder, name, cells))

    def page_of(cell: CellReport, scenario: str) -> str:
        path = cell_page(folder, cell, scenario)
        return path if path in shown else ""

    grid = cells_grid(name, cells, pattern, page_of)
    yield Board(found=(figure,), grids={page: (grid,)}, cells=shown)


def cell_page(engine: str, cell: CellReport, scenario: str) -> str:
    """The page of a wrong cell, from the site's folder. engine: the name of its folder"""
    name = f"{cell.file.removesuffix('.json')}-{scenario}.html"
    return posixpath.join(engine, "cells", name)


def wrong_cells(
    engine: str, name: str, cells: Iterable[CellReport]
) -> Iterator[tuple[str, tuple[PicturedFinding, ...]]]:
    """(page, what it shows) of each cell with a wrong value. name: of the engine, in words"""
    for cell in cells:
        for scenario, judged in cell.scenarios.items():
            shown = tuple(_findings(engine, f"{name} {cell.title}", cell, scenario, judged))
            if shown:
                yield cell_page(engine, cell, scenario), shown


def _findings(
    engine: str, title: str, cell: CellReport, scenario: str, judged: ScenarioReport
) -> Iterator[PicturedFinding]:
    """What goes wrong with nothing held, then what each harmful landing does, once."""
    name, command = f"{title}, {scenario}", _command(engine, cell, scenario)
    measured = Fact(term="measured by", text=f"racegate {judged.commit}" if judged.commit else "")
    facts = (measured,) if judged.commit else ()
    if judged.wrong:
        yield PicturedFinding(
            name=name,
            outcome=judged.verdict,
            title="Wrong in the run in which nothing is held",
            impact="; ".join(judged.wrong),
            relation=Relation.ORDERED,
            replay=f"{command} --runs 0",
            facts=facts,
        )
    landings: dict[tuple[tuple[str, str], ...], list[CellConflict]] = {}
    for conflict in judged.conflicts:
        if conflict.effect in HARMFUL:
            landings.setdefault(conflict.holds, []).append(conflict)
    for holds, conflicts in landings.items():
        yield _landing(name, judged.verdict, command, holds, conflicts, facts)


def _landing(
    name: str,
    verdict: str,
    command: str,
    holds: tuple[tuple[str, str], ...],
    conflicts: list[CellConflict],
    facts: tuple[Fact, ...],
) -> PicturedFinding:
    first = conflicts[0]
    verb = "writes" if first.is_write else "reads"
    texts = tuple(Hold(op=op, until=until).text() for op, until in holds)
    races = (Fact(term="races with", text=one.second) for one in conflicts)
    return PicturedFinding(
        name=name,
        outcome=verdict,
        title=f"{first.first} lands too late",
        impact="; ".join(first.does),
        sides=(
            _side(first.first, "is in flight"),
            _side(first.second, verb),
        ),
        holds=texts,
        replay=" ".join((command, *(f"--hold {quote(text)}" for text in texts))),
        facts=(*races, *facts),
        timeline=_timeline(holds[0], first) if holds else None,
    )


def _side(place: str, verb: str) -> PicturedSide:
    what, function = _parts(place)
    lane = _LANES[HOST] if place.startswith("host ") else "its stream"
    return PicturedSide(name=what, lane=lane, verb=verb, stack=(function,) if function else ())


def _parts(place: str) -> tuple[str, str]:
    """(kind and buffer, function) of a place, as in `d2h counts@function#4`."""
    what, _, function = place.partition("@")
    return what, function


def _short(place: str) -> str:
    """As it fits a box: kind and function."""
    what, function = _parts(place)
    return f"{what.rpartition(' ')[0] or what}, {function}" if function else what


def _timeline(hold: tuple[str, str], conflict: CellConflict) -> Timeline:
    """The held copy, and the point at which it lands: a cell keeps no more of the run."""
    operation, until = hold
    is_forced = until == FORCED
    point = conflict.second if is_forced else until
    held = Bar(
        name=_short(operation),
        step=0,
        lane=1,
        at=0,
        until=None,
        landed=2,
        role=Role.FIRST,
        held="something waits for it" if is_forced else _short(until),
    )
    met = Bar(
        name=_short(point),
        step=0,
        lane=HOST if point.startswith("host ") else 1,
        at=1,
        until=1,
        landed=1,
        role=Role.SECOND,
        touches=_parts(point)[0].rpartition(" ")[2],
    )
    return Timeline(
        lanes=_LANES,
        bars=(held, met),
        arrows=(),
        buffer=_parts(conflict.first)[0].rpartition(" ")[2],
        rows=(),
        noun="",
        relation=Relation.UNORDERED,
        step_rows=(),
    )


def _command(engine: str, cell: CellReport, scenario: str) -> str:
    """What judges the cell's scenario again, on the release as it is."""
    settings = (("--runner", cell.runner), ("--cache-mode", cell.mode), ("--model", cell.model))
    options = " ".join(f"{option} {quote(value)}" for option, value in settings if value)
    return f"racegate {engine} run {quote(scenario)} --release {quote(cell.release)} {options}"
