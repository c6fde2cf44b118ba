"""One scenario on one release: the recorded run, the landings of what races in it, a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from racegate.history.finding import Verdict
from racegate.interpose.outcome import Ending, Outcome, Plan
from racegate.scenario.spec import Abort, DraftLimit, Scenario
from racegate.targets.vllm.search import RUNS_MAX, Effect, Holds, Search, is_wrong, search
from racegate.targets.vllm.sensitivity import Sensitivity, absent, dead
from racegate.targets.vllm.wire import (
    PENALISED,
    REQUESTS_MAX,
    STEPS,
    TEMPERATURE_MAX,
    TOKENS_MAX,
    Fidelity,
    Runner,
    StateMode,
    Told,
)

UNSEEN = {
    Fidelity.HOLLOW: (
        "the forward pass: the model is scripted, recurrent states and attention caches are not "
        "computed (hollow fidelity)"
    ),
    Fidelity.FULL: "the drafter's forward pass: it is scripted",
}


class Runs(Protocol):
    """What is judged: an engine that answers one run at a time."""

    def run(self, scenario: Scenario, plan: Plan) -> Told:
        """One run under a plan."""
        ...


class EngineCell(msgspec.Struct, frozen=True, kw_only=True):
    """Which engine. release: its version, or a checkout's path"""

    release: str

    @property
    def title(self) -> str:
        """What a reader calls it."""
        raise NotImplementedError

    @property
    def command(self) -> tuple[str, ...]:
        """What follows `racegate` on the command line, then the options behind the scenario."""
        raise NotImplementedError

    @property
    def unseen(self) -> str:
        """What no verdict on it covers."""
        raise NotImplementedError

    def cannot_run(self, scenario: Scenario) -> str:
        """Why a scenario cannot be run on it; empty if it can."""
        raise NotImplementedError


class Cell(EngineCell, frozen=True, kw_only=True):
    """A release of vLLM with one of its runners. fidelity: whether its model computes"""

    runner: Runner
    mode: StateMode
    fidelity: Fidelity = Fidelity.HOLLOW

    @property
    def title(self) -> str:
        return f"vLLM {self.release} {self.runner} {self.mode}"

    @property
    def command(self) -> tuple[str, ...]:
        options = (f"--runner {self.runner}", f"--cache-mode {self.mode}")
        full = ("--fidelity full",) if self.fidelity is Fidelity.FULL else ()
        return ("vllm run", f"--release {self.release}", *options, *full)

    @property
    def unseen(self) -> str:
        return UNSEEN[self.fidelity]

    def cannot_run(self, scenario: Scenario) -> str:
        if scenario.expect.prefix_hits and self.mode is StateMode.NONE:
            return "it needs cached prefixes: --cache-mode align"
        return cannot_run(scenario) or self._cannot_compute(scenario)

    def _cannot_compute(self, scenario: Scenario) -> str:
        """Where what the model says is not the likeliest token, or may not be it."""
        asks = [r.name for r in scenario.requests if r.temperature or r.grammar_modulus]
        if self.fidelity is Fidelity.HOLLOW or not asks:
            return ""
        return f"request {asks[0]} is sampled, or has a grammar: --fidelity hollow"


class EngineVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is said of one scenario in one cell.

    told: the recorded run, or the one under the holds asked for; unmet: why it is no pass
    not_seen: what the verdict does not cover, by kind
    sensitivity: whether a planted wrong value changes each observation
    refused: why the engine is not asked to run this scenario, if it is not
    """

    cell: EngineCell
    scenario: str
    verdict: Verdict
    told: Told
    search: Search | None = None
    holds: Holds = ()
    unmet: tuple[str, ...] = ()
    not_seen: tuple[str, ...] = ()
    message: str = ""
    sensitivity: Sensitivity = {}
    refused: str = ""


def judge(
    engine: Runs,
    scenario: Scenario,
    cell: EngineCell,
    *,
    sensitivity: Sensitivity | None = None,
    runs_max: int = RUNS_MAX,
    on_run: Callable[[int], None] | None = None,
) -> EngineVerdict:
    """One recorded run and, if something races in it, its landings.

    sensitivity: of this engine; where an observation is dead, nothing that is judged passes
    """
    pulses = sensitivity or {}
    if reason := cell.cannot_run(scenario):
        return _refused(cell, scenario, reason)
    base = engine.run(scenario, Plan())
    if base.outcome.ending is not Ending.FINISHED:
        return _verdict(cell, scenario, base, None, pulses)
    if not base.outcome.findings or is_wrong(base):
        return _verdict(cell, scenario, base, None, pulses)
    found = search(lambda plan: engine.run(scenario, plan), base, runs_max=runs_max, on_run=on_run)
    return _verdict(cell, scenario, base, found, pulses)


def judge_under(engine: Runs, scenario: Scenario, cell: EngineCell, holds: Holds) -> EngineVerdict:
    """One run under holds, compared with the one in which nothing is held."""
    base = engine.run(scenario, Plan(is_recording=False, settles=True))
    held = engine.run(scenario, Plan(holds=holds, is_recording=False))
    unrealised = tuple(
        f"hold '{text}' was not realised" for text, n in held.outcome.realised.items() if not n
    )
    is_other = held.seen != base.seen
    if held.outcome.ending not in (Ending.FINISHED, Ending.FAILED):
        verdict = Verdict.INCONCLUSIVE
    elif is_other or is_wrong(held):
        verdict = Verdict.DIVERGENT
    else:
        verdict = Verdict.INCONCLUSIVE if unrealised else Verdict.BENIGN
    return EngineVerdict(
        cell=cell,
        scenario=scenario.name,
        verdict=verdict,
        told=held,
        holds=holds,
        unmet=unrealised,
        not_seen=_not_seen(cell, held),
        message=held.outcome.message,
    )


def cannot_run(scenario: Scenario) -> str:
    """Why a scenario cannot be run on vLLM here; empty if it can."""
    known = Abort | DraftLimit
    kinds = {type(event).__name__ for event in scenario.events if not isinstance(event, known)}
    if kinds:
        return f"it needs {', '.join(sorted(kinds)).lower()}"
    if len(scenario.requests) > REQUESTS_MAX:
        return f"it has more than {REQUESTS_MAX} requests"
    for request in scenario.requests:
        if request.temperature > TEMPERATURE_MAX:
            return f"request {request.name} is sampled at more than {TEMPERATURE_MAX}"
        if request.grammar_modulus and not all(step % request.grammar_modulus for step in STEPS):
            return f"request {request.name} has a grammar that forbids what the model says"
        if request.images:
            return f"request {request.name} has images"
        if request.stop_after is not None or request.stop_token is not None:
            return f"request {request.name} has a stop token"
        if len(request.prompt) + request.max_tokens > TOKENS_MAX:
            return f"request {request.name} is longer than {TOKENS_MAX} tokens"
    return ""


def _refused(cell: EngineCell, scenario: Scenario, reason: str) -> EngineVerdict:
    return EngineVerdict(
        cell=cell,
        scenario=scenario.name,
        verdict=Verdict.INCONCLUSIVE,
        told=Told(outcome=Outcome(ending=Ending.FINISHED)),
        unmet=(f"not run: {reason}",),
        refused=reason,
    )


def unmet_expectations(scenario: Scenario, told: Told) -> tuple[str, ...]:
    """What the scenario expects to be exercised, and was not."""
    expected: dict[str, int] = msgspec.structs.asdict(scenario.expect)
    if any(request.temperature for request in scenario.requests):
        expected[PENALISED] = 1
    return tuple(
        f"{name} is {told.counters.get(name, 0)}, the scenario expects at least {least}"
        for name, least in expected.items()
        if told.counters.get(name, 0) < least
    )


def _verdict(
    cell: EngineCell, scenario: Scenario, base: Told, found: Search | None, pulses: Sensitivity
) -> EngineVerdict:
    unmet = (*unmet_expectations(scenario, base), *dead(pulses))
    return EngineVerdict(
        cell=cell,
        scenario=scenario.name,
        verdict=_word(base, found, unmet),
        told=base,
        search=found,
        unmet=unmet,
        not_seen=(*_not_seen(cell, base), *absent(pulses)),
        message=base.outcome.message,
        sensitivity=pulses,
    )


def _word(base: Told, found: Search | None, unmet: tuple[str, ...]) -> Verdict:
    ending = base.outcome.ending
    if ending in (Ending.NOT_MODELLED, Ending.LOST, Ending.TIMED_OUT):
        return Verdict.INCONCLUSIVE
    if ending is Ending.FAILED or is_wrong(base):
        return Verdict.DIVERGENT
    effects = {judged.effect for judged in found.conflicts} if found is not None else set()
    if effects & {Effect.WRONG, Effect.DIVERGENT}:
        return Verdict.DIVERGENT
    if unmet:
        return Verdict.INCONCLUSIVE
    if not effects:
        return Verdict.PROVED
    return Verdict.BENIGN if effects == {Effect.BENIGN} else Verdict.CONFLICT


def _not_seen(cell: EngineCell, told: Told) -> tuple[str, ...]:
    counted = [f"{what}: {count}" for what, count in sorted(told.outcome.not_seen.items())]
    return (cell.unseen, *counted)
