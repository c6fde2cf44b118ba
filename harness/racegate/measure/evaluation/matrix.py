"""The kill matrix: every seeded fault against every oracle and every strategy, what each of them
alone would have missed, and whether a cell got worse.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path

import msgspec

from racegate.check.repro.search import BUDGET
from racegate.faults.catalogue import FAULTS, find_fault
from racegate.faults.fault import FaultKind
from racegate.jobs.environment import environment
from racegate.jobs.gather import run_all
from racegate.jobs.pools.pool import Task
from racegate.jobs.stopping import StoppedError
from racegate.measure.evaluation.cells import (
    SPEAKING,
    Look,
    MatrixRow,
    OracleCell,
    Sight,
    Strategy,
    StrategyCell,
)
from racegate.measure.evaluation.kills import measure_row
from racegate.measure.evaluation.scripts import Scripts
from racegate.scenario.errors import BadInputError
from racegate.scenario.spec import OwnScenario
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.reading import ReadError, read_json

SCHEMA = "racegate.matrix/1"
MATRIX_BYTES_MAX = 1 << 24


class MatrixError(BadInputError):
    """A matrix that cannot be read or made: says why."""


class OracleTotal(StrictStruct, frozen=True, kw_only=True):
    """One look over all faults but the controls.

    found: how many it sees in some run; missed: the others
    only: those that no other oracle sees in any run
    runs_alone: runs of which it alone has something to say; runs_alone_without_stepwise: the same
        if the stepwise oracle is silent, as it is about a defect that the reference has too
    The last three are nothing for the final tokens, which are no oracle.
    """

    found: int
    missed: tuple[str, ...]
    only: tuple[str, ...]
    runs_alone: int
    runs_alone_without_stepwise: int


class StrategyTotal(StrictStruct, frozen=True, kw_only=True):
    """One strategy over all faults but the controls.

    killed: with a wrong value; missed: the others; flagged: those of the missed that the ordering
    oracle named under it
    """

    killed: int
    missed: tuple[str, ...]
    flagged: tuple[str, ...]


class Totals(StrictStruct, frozen=True, kw_only=True):
    """The sums.

    faults: all but the controls; runs: of them, that the oracles judged; ordering: ordering faults
    controls: variants that must stay silent; silent_controls: how many nothing spoke about
    unexpected: faults whose first wrong field is not the one that the catalogue names
    oracles: by look; strategies: by strategy
    """

    faults: int
    runs: int
    ordering: int
    controls: int
    silent_controls: int
    unexpected: tuple[str, ...]
    oracles: dict[Look, OracleTotal]
    strategies: dict[Strategy, StrategyTotal]


class Matrix(StrictStruct, frozen=True, kw_only=True):
    """Every seeded fault against every oracle and every strategy.

    budget: schedules per script of the searching strategies; seed: of the samplers
    totals: the sums; rows: fault by fault
    """

    schema: str
    environment: dict[str, str]
    budget: int
    seed: int
    seconds: float
    totals: Totals
    rows: tuple[MatrixRow, ...]


class Worse(msgspec.Struct, frozen=True, kw_only=True):
    """A cell that shows less than it did. column: a look, a strategy, or what concerns the row."""

    fault: str
    column: str
    what: str


def measure(
    scenarios: Mapping[str, OwnScenario],
    *,
    workers: int = 1,
    budget: int = BUDGET,
    seed: int = 0,
    on_row: Callable[[str], None] = lambda name: None,
) -> Matrix:
    """The whole matrix. scenarios: the gate's, by name.

    Raises StoppedError if it is told to stop: it has the rows that were measured.
    """
    _require_scripts(scenarios)
    started = time.perf_counter()
    try:
        rows, _ = run_all(
            partial(make_worker, dict(scenarios), budget, seed),
            (Task(name=fault.name, content=fault.name) for fault in FAULTS),
            workers=workers,
            on_done=on_row,
        )
    except StoppedError as stop:
        known = [row for row in stop.results if isinstance(row, MatrixRow)]
        otherwise = ", ".join(totals_of(known).unexpected) or "none"
        done = f"{stop.done} (shown otherwise than expected: {otherwise})"
        raise StoppedError(stop.by, done=done, results=known) from stop
    return Matrix(
        schema=SCHEMA,
        environment=environment(),
        budget=budget,
        seed=seed,
        seconds=time.perf_counter() - started,
        totals=totals_of(rows),
        rows=tuple(rows),
    )


def _require_scripts(scenarios: Mapping[str, OwnScenario]) -> None:
    """Raises MatrixError if a fault's script is not there."""
    for fault in FAULTS:
        for name in fault.scenarios:
            if name not in scenarios:
                raise MatrixError(
                    f"no scenario {name!r}, in which {fault.name} shows; name the folder of the "
                    "gate's scripts with --scenarios"
                )


class RowWorker:
    """Measures faults by their names."""

    def __init__(self, scenarios: Mapping[str, OwnScenario], *, budget: int, seed: int) -> None:
        self._scripts = Scripts(scenarios)
        self._budget = budget
        self._seed = seed

    def work(self, name: str) -> MatrixRow:
        """One fault."""
        fault = find_fault(name)
        names = fault.scenarios or self._scripts.names
        checkers = {name: self._scripts.checker(name) for name in names}
        return measure_row(fault, checkers, budget=self._budget, seed=self._seed)


def make_worker(
    scenarios: Mapping[str, OwnScenario], budget: int, seed: int, number: int
) -> RowWorker:
    """In a worker process; every worker is like the other."""
    return RowWorker(scenarios, budget=budget, seed=seed)


def totals_of(rows: Sequence[MatrixRow]) -> Totals:
    """The sums over the rows."""
    seeded = [row for row in rows if row.kind is not FaultKind.CONTROL]
    controls = [row for row in rows if row.kind is FaultKind.CONTROL]
    return Totals(
        faults=len(seeded),
        runs=sum(row.oracles[Look.STEPWISE].runs for row in seeded),
        ordering=sum(row.kind is FaultKind.ORDERING for row in seeded),
        controls=len(controls),
        silent_controls=sum(is_silent(row) for row in controls),
        unexpected=tuple(
            row.fault for row in seeded if row.shown is None or row.shown.is_expected is not True
        ),
        oracles={column: _oracle_total(seeded, column) for column in Look},
        strategies={strategy: _strategy_total(seeded, strategy) for strategy in Strategy},
    )


def _oracle_total(rows: Sequence[MatrixRow], column: Look) -> OracleTotal:
    missed = [row.fault for row in rows if not row.oracles[column].seen]
    cells = [row.oracles[column] for row in rows]
    return OracleTotal(
        found=len(rows) - len(missed),
        missed=tuple(missed),
        only=tuple(row.fault for row in rows if _speakers(row) == {column}),
        runs_alone=sum(len(cell.alone) for cell in cells),
        runs_alone_without_stepwise=sum(len(cell.alone_without_stepwise) for cell in cells),
    )


def _speakers(row: MatrixRow) -> set[Look]:
    """The oracles that see a fault in some run; a stopped engine speaks as well."""
    return {column for column in SPEAKING if row.oracles[column].seen}


def _strategy_total(rows: Sequence[MatrixRow], strategy: Strategy) -> StrategyTotal:
    missed = [row for row in rows if row.strategies[strategy].kill is None]
    return StrategyTotal(
        killed=len(rows) - len(missed),
        missed=tuple(row.fault for row in missed),
        flagged=tuple(row.fault for row in missed if row.strategies[strategy].flagged is not None),
    )


def is_silent(row: MatrixRow) -> bool:
    """Whether nothing spoke of a row: right for a control alone."""
    return not any(cell.seen for cell in row.oracles.values()) and all(
        cell.kill is None and cell.flagged is None for cell in row.strategies.values()
    )


def is_good(totals: Totals) -> bool:
    """Every fault shows, first where the catalogue says, and no control does."""
    return not totals.unexpected and totals.silent_controls == totals.controls


def worse_cells(old: Matrix, new: Matrix) -> list[Worse]:
    """Cells of the new matrix that show less than the old one's. Seconds are not compared."""
    rows = {row.fault: row for row in new.rows}
    worse = []
    for before in old.rows:
        if before.fault in rows:
            worse += worse_in_row(before, rows[before.fault])
        else:
            worse.append(Worse(fault=before.fault, column="row", what="the fault is gone"))
    return worse


def worse_in_row(old: MatrixRow, new: MatrixRow) -> list[Worse]:
    """The same for one fault, over the columns that the new row has."""
    if new.kind is FaultKind.CONTROL:
        spoke = () if is_silent(new) else ("something speaks about a control",)
        return [Worse(fault=new.fault, column="row", what=what) for what in spoke]
    found: Iterable[tuple[str, Iterable[str]]] = chain(
        [("shown", _worse_field(old.shown, new.shown))],
        ((str(key), _worse_look(old.oracles.get(key), cell)) for key, cell in new.oracles.items()),
        (
            (str(key), _worse_strategy(old.strategies.get(key), cell))
            for key, cell in new.strategies.items()
        ),
    )
    return [
        Worse(fault=new.fault, column=column, what=what)
        for column, whats in found
        for what in whats
    ]


def _worse_look(old: OracleCell | None, new: OracleCell) -> Iterable[str]:
    if old is None:
        return
    if new.seen < old.seen:
        yield f"sees it in {new.seen} of {new.runs} runs, before in {old.seen} of {old.runs}"
    elif new.first is not None:
        yield from _worse_field(old.first, new.first)


def _worse_strategy(old: StrategyCell | None, new: StrategyCell) -> Iterable[str]:
    if old is None:
        return
    yield from _later("kill", _schedules(old.kill), _schedules(new.kill))
    yield from _later("order flagged", old.flagged, new.flagged)
    if new.kill is not None:
        yield from _worse_field(old.kill, new.kill)


def _schedules(sight: Sight | None) -> int | None:
    return None if sight is None else sight.schedules


def _later(what: str, old: int | None, new: int | None) -> Iterable[str]:
    if old is not None and (new is None or new > old):
        yield f"{what}: {new or 'not any more'}, before in schedule {old}"


def _worse_field(old: Sight | None, new: Sight | None) -> Iterable[str]:
    """A first field that was the expected one, and is another now."""
    if old is not None and old.is_expected and (new is None or not new.is_expected):
        now = None if new is None else new.field
        yield f"differs first in {now}, before in {old.field}, as expected"


class _Schema(msgspec.Struct, frozen=True):
    """What a file says that it is."""

    schema: str = ""


def load_matrix(path: Path) -> Matrix:
    """The matrix in a file. Raises MatrixError."""
    try:
        raw = read_json(path, MATRIX_BYTES_MAX)
        if msgspec.convert(raw, _Schema).schema != SCHEMA:
            raise MatrixError(f"{path}: not of the schema {SCHEMA!r}; make it again")
        return msgspec.convert(raw, Matrix)
    except ReadError as error:
        raise MatrixError(f"{path}: cannot be read: {error}") from error
    except msgspec.ValidationError as error:
        raise MatrixError(f"{path}: {error}") from error
