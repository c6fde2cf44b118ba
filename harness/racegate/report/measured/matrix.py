"""The kill matrix for people: a table for the terminal, a page, and a page's worth of Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Column, Table

from racegate.faults.fault import FaultKind
from racegate.measure.evaluation.cells import (
    ORACLE_LOOKS,
    SPEAKING,
    Look,
    MatrixRow,
    OracleCell,
    Sight,
    Strategy,
    StrategyCell,
)
from racegate.measure.evaluation.matrix import Matrix, OracleTotal, StrategyTotal, Totals, Worse
from racegate.report.finding.page import SiteSection
from racegate.report.templating import render
from racegate.scenario.untrusted.console import line

HOLDS_SHOWN_MAX = 3
FAULT_WIDTH_MAX = 36


class Heading(NamedTuple):
    """A column: its name, its name where there is little room, and what it means."""

    name: str
    short: str
    meaning: str


LOOKS = {
    Look.ORDERING: Heading("ordering", "order", "an order is missing, whatever the timing was"),
    Look.OWNERSHIP: Heading(
        "ownership", "owner", "a cell that is read holds the value of another request or step"
    ),
    Look.STEPWISE: Heading(
        "stepwise", "step", "a field differs from the reference, boundary by boundary"
    ),
    Look.INVARIANTS: Heading(
        "invariants", "invar.", "a predicate over the engine's own values does not hold"
    ),
    Look.LOSSLESSNESS: Heading(
        "losslessness", "loss", "delivered tokens are not those of plain decoding"
    ),
    Look.STOPPED: Heading("stopped", "stop", "the engine crashed or could not go on"),
    Look.FINAL_TOKENS: Heading(
        "final tokens", "final tokens", "what comparing only the final tokens notices, all runs"
    ),
    Look.FINAL_TOKENS_NATURAL: Heading(
        "final tokens, natural timing",
        "the same, eager",
        "the same in eager runs only: an ordinary end-to-end test",
    ),
}
STRATEGIES = {
    Strategy.EAGER: Heading("eager only", "eager", "every operation completes when it is issued"),
    Strategy.LATE: Heading(
        "everything late", "late", "no operation completes before a wait needs it"
    ),
    Strategy.LANE_LATE: Heading(
        "one lane late", "lane late", "one stream at a time completes late"
    ),
    Strategy.REVERSALS: Heading(
        "reversals", "revers.", "the eager run, then one hold per conflict found in it"
    ),
    Strategy.DPOR: Heading(
        "DPOR", "DPOR", "one run per class of equivalent schedules, up to the budget"
    ),
    Strategy.POS: Heading("POS", "POS", "partial order sampling, up to the budget"),
    Strategy.RANDOM: Heading(
        "random", "random", "a random walk over what may complete, up to the budget"
    ),
    Strategy.SYNC_EVERYWHERE: Heading(
        "natural order, sync everywhere",
        "sync",
        "the host waits for the device behind every operation",
    ),
}


class Mark(Enum):
    """A cell at a glance: symbol, style class of the page, style of the terminal, meaning."""

    FOUND = ("●", "found", "green", "seen: a finding, or a wrong value under this strategy")
    FLAGGED = ("◐", "flagged", "yellow", "no wrong value, but the ordering oracle names the race")
    MISSED = ("○", "missed", "red", "missed")
    SILENT = ("·", "silent", "dim", "a control, and nothing speaks: right")
    LOUD = ("✖", "loud", "bold red", "a control, and something speaks: wrong")

    @property
    def symbol(self) -> str:
        """For the terminal and Markdown."""
        return self.value[0]

    @property
    def css(self) -> str:
        """The style class of the page."""
        return self.value[1]

    @property
    def style(self) -> str:
        """The style of the terminal."""
        return self.value[2]

    @property
    def meaning(self) -> str:
        """What the legend says."""
        return self.value[3]


class CellView(NamedTuple):
    """A cell as shown. tip: everything known of it, in lines."""

    column: str
    mark: Mark
    text: str
    tip: str


class RowView(NamedTuple):
    """A fault as shown."""

    row: MatrixRow
    anchor: str
    oracles: list[CellView]
    strategies: list[CellView]


class TotalView(NamedTuple):
    """A column's sum as shown. found: of all faults; tip: the missed ones by name."""

    column: str
    meaning: str
    found: int
    missed: int
    tip: str


def print_matrix(console: Console, matrix: Matrix) -> None:
    """Two tables, oracles and strategies, and what each alone would have missed."""
    views = [_view(row) for row in matrix.rows]
    _print_half(console, views, LOOKS.values(), lambda view: view.oracles)
    _print_half(console, views, STRATEGIES.values(), lambda view: view.strategies)
    legend = ", ".join(f"{mark.symbol} {mark.meaning}" for mark in Mark)
    console.print(f"{legend}; ≠ another field than the catalogue names; numbers are schedules")
    for headline in headlines(matrix.totals):
        console.print(headline)


def print_worse(console: Console, worse: Sequence[Worse]) -> None:
    """The cells that show less than before."""
    table = Table(Column("fault", no_wrap=True), "column", "what")
    for cell in worse:
        table.add_row(cell.fault, cell.column, cell.what)
    console.print(table if worse else "no cell is worse than before")


def render_html(matrix: Matrix, *, sections: Sequence[SiteSection] = ()) -> str:
    """The matrix as one page that needs nothing else. sections: of the site that it is a page of"""
    return _render("matrix.html.j2", matrix, sections)


def render_markdown(matrix: Matrix) -> str:
    """What the matrix says in numbers, for the folder it is kept in."""
    return _render("matrix.md.j2", matrix)


def headlines(totals: Totals) -> list[str]:
    """What each single way to look would have missed, in sentences."""
    looks, tried, of = totals.oracles, totals.strategies, totals.faults
    natural, forced = looks[Look.FINAL_TOKENS_NATURAL], looks[Look.FINAL_TOKENS]
    sync = tried[Strategy.SYNC_EVERYWHERE]
    alone = (f"{LOOKS[look].name} {looks[look].runs_alone}" for look in ORACLE_LOOKS)
    return [
        f"Eager alone: a wrong value for {_strategy_text(tried[Strategy.EAGER], of)}",
        f"Everything late alone: a wrong value for {_strategy_text(tried[Strategy.LATE], of)}",
        f"Final tokens alone, in natural timing: {natural.found} of {of} faults. Misses "
        f"{len(natural.missed)}; under every schedule of the table still {len(forced.missed)}: "
        f"{_names(forced.missed)}.",
        f"A sync everywhere: a wrong value for {_strategy_text(sync, of)}",
        f"Of {totals.runs} judged runs, those of which one oracle alone has something to say: "
        f"{', '.join(alone)}.",
    ]


def _strategy_text(total: StrategyTotal, of: int) -> str:
    if not total.missed:
        return f"{total.killed} of {of} faults."
    return (
        f"{total.killed} of {of} faults. Misses {len(total.missed)}: {_names(total.missed)}; the "
        f"ordering oracle names {len(total.flagged)} of them."
    )


def _names(faults: Sequence[str]) -> str:
    return ", ".join(faults) or "none"


def _print_half(
    console: Console,
    views: list[RowView],
    headings: Iterable[Heading],
    half: Callable[[RowView], list[CellView]],
) -> None:
    table = Table(
        Column("fault", no_wrap=True, max_width=FAULT_WIDTH_MAX),
        *(heading.short for heading in headings),
        box=SIMPLE_HEAD,
    )
    for view in views:
        cells = [line((c.mark.symbol, c.mark.style), c.text) for c in half(view)]
        table.add_row(view.row.fault, *cells)
    console.print(table)


def _render(template: str, matrix: Matrix, sections: Sequence[SiteSection] = ()) -> str:
    totals = matrix.totals
    return render(
        template,
        sections=sections,
        matrix=matrix,
        totals=totals,
        headlines=headlines(totals),
        rows=[_view(row) for row in matrix.rows],
        marks=list(Mark),
        oracles=[_oracle_total(totals.oracles[look], look) for look in LOOKS],
        strategies=[_strategy_total(totals.strategies[s], s) for s in STRATEGIES],
        oracle_count=len(SPEAKING),
        sums=[(LOOKS[look], totals.oracles[look], look in SPEAKING) for look in LOOKS],
        flagged=[len(totals.strategies[strategy].flagged) for strategy in STRATEGIES],
    )


def _view(row: MatrixRow) -> RowView:
    return RowView(
        row=row,
        anchor=row.fault.replace(":", "-"),
        oracles=[_oracle_view(row, look, row.oracles[look]) for look in LOOKS],
        strategies=[_strategy_view(row, s, row.strategies[s]) for s in STRATEGIES],
    )


def _oracle_view(row: MatrixRow, look: Look, cell: OracleCell) -> CellView:
    mark = _mark(row, found=cell.first is not None, flagged=False)
    tip = [f"{cell.seen} of {cell.runs} runs"]
    if cell.alone:
        tip.append(f"alone in {len(cell.alone)} of them")
    text = f"{cell.seen}/{cell.runs}" if cell.seen else ""
    return CellView(LOOKS[look].name, mark, text, "\n".join([*tip, *_sight_lines(cell.first)]))


def _strategy_view(row: MatrixRow, strategy: Strategy, cell: StrategyCell) -> CellView:
    kill = cell.kill
    mark = _mark(row, found=kill is not None, flagged=cell.flagged is not None)
    is_other = kill is not None and kill.is_expected is False
    text = "" if kill is None else f"{kill.schedules}{'≠' if is_other else ''}"
    tip = [f"{cell.schedules} schedules, {cell.seconds:.2f} s"]
    if cell.flagged is not None:
        tip.append(f"the ordering oracle speaks in schedule {cell.flagged}")
    return CellView(
        STRATEGIES[strategy].name, mark, text, "\n".join([*tip, *_sight_lines(kill, row.expect)])
    )


def _mark(row: MatrixRow, *, found: bool, flagged: bool) -> Mark:
    if row.kind is FaultKind.CONTROL:
        return Mark.LOUD if found or flagged else Mark.SILENT
    if found:
        return Mark.FOUND
    return Mark.FLAGGED if flagged else Mark.MISSED


def _sight_lines(sight: Sight | None, expect: str = "") -> list[str]:
    """The first run that shows it, in lines."""
    if sight is None:
        return []
    lines = [f"first: {sight.scenario}, schedule {sight.schedules}, {sight.seconds:.2f} s"]
    lines += [f"hold {hold}" for hold in sight.holds[:HOLDS_SHOWN_MAX]] or ["no holds (eager)"]
    if len(sight.holds) > HOLDS_SHOWN_MAX:
        lines.append(f"and {len(sight.holds) - HOLDS_SHOWN_MAX} more holds")
    lines.append(sight.signature)
    if sight.field is not None:
        other = "" if sight.is_expected or not expect else f", expected {expect}"
        lines.append(f"differs first: {sight.field}{other}")
    return lines


def _oracle_total(total: OracleTotal, look: Look) -> TotalView:
    name, _, meaning = LOOKS[look]
    return TotalView(name, meaning, total.found, len(total.missed), "\n".join(total.missed))


def _strategy_total(total: StrategyTotal, strategy: Strategy) -> TotalView:
    name, _, meaning = STRATEGIES[strategy]
    return TotalView(name, meaning, total.killed, len(total.missed), "\n".join(total.missed))
