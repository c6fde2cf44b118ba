"""A scenario on an engine behind an adapter: one run under holds, read by what is wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cached_property

import msgspec

from racegate.history.finding import Finding, FindingKind
from racegate.history.run import EngineResult, Run
from racegate.history.schedule import EAGER, Schedule
from racegate.history.trace import Conflict
from racegate.history.verdict import unrealised
from racegate.interpose.outcome import Ending, Outcome, Plan
from racegate.oracles.findings import from_losses, from_misowned, signature
from racegate.oracles.losslessness import find_losses
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.ownership import find_misowned
from racegate.scenario.spec import OwnScenario
from racegate.targets.adapters.answers import wrong_ends
from racegate.targets.adapters.client import Adapter, AdapterRun, EngineStoppedError
from racegate.targets.adapters.errors import AdapterError, EngineLostError, LossKind
from racegate.targets.adapters.wire import Plant, RefusedAnswer, StopKind

PlainTokens = dict[str, tuple[int, ...]]  # of plain decoding, by request


class AdapterOutcome(Outcome, frozen=True, kw_only=True):
    """One run as an adapter told it.

    told: all of it, None of one that was refused
    conflicts: pairs that nothing orders; wrong: what is wrong in it, or what its holds change
    missing: in words, what it leaves open; refused: why the engine does not run it
    """

    told: Run | None = None
    conflicts: tuple[Conflict, ...] = ()
    wrong: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    refused: str = ""

    @property
    def history(self) -> Run:
        """All that it told, of a run that was not refused."""
        assert self.told is not None
        return self.told

    @property
    def is_decided(self) -> bool:
        """Whether it came to an end, or shows something wrong before one that a limit brought."""
        return self.ending in (Ending.FINISHED, Ending.FAILED)

    @property
    def is_wrong(self) -> bool:
        """Whether something is wrong in it."""
        return bool(self.wrong)

    def differs(self, base: Outcome, *, unstable: Collection[str] = ()) -> bool:
        """Whether something is wrong: what holds change was asked when it was run."""
        return self.is_wrong


NOTHING = AdapterOutcome(ending=Ending.NOT_MODELLED)  # of a run that was not made


class AdaptedTarget:
    """A scenario on an engine, with what is planted in it. The first run is the eager one.

    plain: asked for the tokens of plain decoding, None if the engine does not do it
    Raises AdapterError if what the engine says cannot be believed.
    """

    def __init__(
        self,
        adapter: Adapter,
        scenario: OwnScenario,
        *,
        device: str,
        plant: Plant | None,
        plain: Callable[[], PlainTokens | None],
    ) -> None:
        self._adapter = adapter
        self._scenario = scenario
        self._device = device
        self._plant = plant
        self._plain = plain

    @cached_property
    def eager(self) -> AdapterOutcome:
        """The run in which every operation completes at once."""
        return self._read(self._asked(EAGER), EAGER)

    def run(self, plan: Plan) -> AdapterOutcome:
        """One run under a plan."""
        schedule = Schedule(holds=plan.holds)
        if not plan.holds:
            return self.eager
        found = self._read(self._asked(schedule), schedule)
        if plan.is_recording or found.wrong:
            return found
        return msgspec.structs.replace(found, told=None, conflicts=())  # a trace is large

    def _asked(self, schedule: Schedule) -> AdapterRun | RefusedAnswer:
        return self._adapter.run(
            self._scenario, schedule=schedule, plant=self._plant, device=self._device
        )

    def _read(self, told: AdapterRun | RefusedAnswer, schedule: Schedule) -> AdapterOutcome:
        text = " and ".join(schedule.texts())
        if isinstance(told, RefusedAnswer):
            return AdapterOutcome(
                ending=Ending.NOT_MODELLED,
                refused=told.reason,
                missing=(f"{text}: {told.reason}",),
            )
        run, conflicts = told.run, tuple(find_conflicts(told.run.trace))
        wrong = self._wrong(run)
        missing = [] if run.stopped is None else [f"{text}: {run.stopped}"]
        if schedule.holds:
            wrong = wrong or self._changed(run, schedule)
            missing += unrealised(run.trace.holds)
            if not _pairs(conflicts) <= _pairs(self.eager.conflicts):
                missing.append(f"{text} brings conflicts of its own")
        ending = Ending.FINISHED if run.stopped is None else Ending.LOST
        return AdapterOutcome(
            ending=Ending.FAILED if wrong and run.stopped is not None else ending,
            told=run,
            conflicts=conflicts,
            wrong=tuple(wrong),
            missing=tuple(missing),
            realised={hold.hold: hold.realised for hold in run.trace.holds},
        )

    def _wrong(self, run: Run) -> list[Finding]:
        """What is wrong in a run by itself, whatever the order: causes before effects."""
        findings = from_misowned(find_misowned(run.trace))
        if run.result is not None:
            findings += self._losses(run.result) or wrong_ends(self._scenario, run.result)
        return findings + _from_stop(run.stopped)

    def _losses(self, result: EngineResult) -> list[Finding]:
        """What plain decoding says against the delivered tokens, if it is offered."""
        plain = self._plain()
        if plain is None:
            return []
        return from_losses(find_losses(result.delivered, plain, result.finished))

    def _changed(self, held: Run, schedule: Schedule) -> list[Finding]:
        """What a landing changes, if it is the landing that does: eager runs have to be equal."""
        eager = self.eager.history
        found = first_change(eager, held, schedule)
        if found:
            again = self._asked(EAGER)
            same = isinstance(again, AdapterRun) and not first_change(eager, again.run, EAGER)
            if not same:
                raise AdapterError(
                    f"{self._adapter.hello.engine}: two eager runs of {self._scenario.name} "
                    "differ, so that nothing can be said of a schedule: seed what is random"
                )
        return found


def _pairs(conflicts: Collection[Conflict]) -> set[tuple[str, str, str]]:
    return {(found.buffer, found.first.name, found.second.name) for found in conflicts}


def _from_stop(error: Exception | None) -> list[Finding]:
    """A stop by itself is a defect; one that a limit of ours brought about is none that we know."""
    if isinstance(error, EngineStoppedError):
        answer = error.answer
        is_deadlock = answer.kind is StopKind.DEADLOCK
        kind = FindingKind.DEADLOCK if is_deadlock else FindingKind.CRASH
        return [_stop(kind, answer.error, f"the engine stopped: {error}")]
    if isinstance(error, EngineLostError) and error.kind is LossKind.EXITED:
        return [_stop(FindingKind.CRASH, "exited", str(error))]
    return []


def _stop(kind: FindingKind, what: str, message: str) -> Finding:
    return Finding(kind=kind, signature=signature(str(kind), what), message=message, actual=message)


def first_change(eager: Run, held: Run, schedule: Schedule) -> list[Finding]:
    """The first thing observed that is not what the eager run has, and then the tokens: what a
    landing changes depends on the schedule.
    """
    when = " and ".join(schedule.texts())
    for mine, its in zip(eager.observations, held.observations, strict=False):
        where = f"step {mine.step}, {mine.boundary}"
        if (mine.step, mine.boundary, mine.values.keys()) != (
            its.step,
            its.boundary,
            its.values.keys(),
        ):
            said = f"{its.boundary} of step {its.step}"
            return [_changed(str(mine.boundary), mine.step, where, said, when)]
        for name, value in mine.values.items():
            if value != its.values[name]:
                field = f"{mine.boundary}.{name}"
                return [_changed(field, mine.step, value, its.values[name], when)]
    if eager.result is None or held.result is None:
        return []  # what came before the end is the same, and the end is judged by itself
    if len(eager.observations) != len(held.observations):
        counts = len(eager.observations), len(held.observations)
        return [_changed("observations", None, *counts, when)]
    for request, tokens in eager.result.delivered.items():
        its_tokens = held.result.delivered[request]
        if tokens != its_tokens:
            found = _changed("delivered", None, list(tokens), list(its_tokens), when)
            return [msgspec.structs.replace(found, request=request)]
    return []


def _changed(field: str, step: int | None, expected: object, actual: object, when: str) -> Finding:
    at = "" if step is None else f"step {step}: "
    return Finding(
        kind=FindingKind.DIVERGENCE,
        signature=signature("divergence", field),
        message=f"{at}{field} depends on the schedule: with {when} it is {actual}, eagerly it is "
        f"{expected}",
        step=step,
        field=field,
        expected=expected,
        actual=actual,
    )
