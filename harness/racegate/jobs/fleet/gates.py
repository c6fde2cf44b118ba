"""Engines of others: the gate of their kind over a folder of scenarios, on an engine that is
started once. A gate plants wrong values first; one that does not see them judges nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from racegate.history.finding import Verdict
from racegate.history.outcome import RunResult
from racegate.jobs.fleet.process import run_commands
from racegate.jobs.fleet.shown import REFUSED, FleetAnswers, Shown, read, shown_of
from racegate.jobs.fleet.targets import AdapterTarget, SglangTarget, VllmTarget

ANSWER = "answer.json"


def judge_by_gate(
    target: AdapterTarget | VllmTarget | SglangTarget, *, folder: Path, timeout_s: float
) -> FleetAnswers:
    """folder: where the scenarios are"""
    asked = ("--scenarios", str(folder), "--json", str(folder / ANSWER))
    if isinstance(target, AdapterTarget):
        command: tuple[str, ...] = ("adapter", "gate", *asked, "--", *target.adapter)
        place = Path(target.folder)
    else:
        group, *words = release_words(target)
        log = ("--log", str(folder / "engine.log"))
        command, place = (group, "gate", *words, *asked, *log), folder
    ended = run_commands([command], folder=folder, place=place, timeout_s=timeout_s)
    if isinstance(target, AdapterTarget):
        gate = read(folder / ANSWER, _AdapterGate)
        shown = (
            {} if gate is None else {one.result.scenario: one.shown() for one in gate.judgements}
        )
    else:
        engine = read(folder / ANSWER, tuple[_EngineVerdict, ...])
        shown = {one.scenario: one.shown() for one in engine or () if one.is_answer}
    return FleetAnswers(shown=shown, why=ended.why)


def release_words(target: VllmTarget | SglangTarget) -> Sequence[str]:
    """A release on the command line: its group of commands, then options of each."""
    if isinstance(target, VllmTarget):
        where = ("--runner", target.runner, "--cache-mode", target.cache_mode)
        return ("vllm", "--release", target.vllm, *where)
    return ("sglang", "--release", target.sglang, "--model", target.model)


class _Judgement(msgspec.Struct, frozen=True):
    result: RunResult
    refused: str | None = None
    landings: int = 0

    def shown(self) -> Shown:
        if self.refused is not None:
            return REFUSED
        return msgspec.structs.replace(shown_of(self.result), schedules=1 + self.landings)


class _AdapterGate(msgspec.Struct, frozen=True):
    judgements: tuple[_Judgement, ...] = ()


class _Hold(msgspec.Struct, frozen=True, array_like=True):
    operation: str
    until: str


class _Landing(msgspec.Struct, frozen=True):
    holds: tuple[_Hold, ...] = ()


class _Finding(msgspec.Struct, frozen=True):
    signature: str
    buffer: str


class _Conflict(msgspec.Struct, frozen=True):
    finding: _Finding
    effect: str
    landing: _Landing | None = None

    @property
    def signature(self) -> str:
        """The hash alone would tell a reader nothing."""
        return f"{self.effect}/{self.finding.buffer}/{self.finding.signature}"

    @property
    def holds(self) -> tuple[str, ...]:
        """As `racegate vllm run --hold` takes them."""
        holds = () if self.landing is None else self.landing.holds
        return tuple(f"{one.operation} until {one.until}" for one in holds)


class _Search(msgspec.Struct, frozen=True):
    conflicts: tuple[_Conflict, ...] = ()
    runs: int = 0


class _Outcome(msgspec.Struct, frozen=True):
    ending: str


class _Told(msgspec.Struct, frozen=True):
    outcome: _Outcome
    delivered: dict[str, tuple[int, ...]] = {}


class _EngineVerdict(msgspec.Struct, frozen=True):
    """What `racegate vllm gate` and `racegate sglang gate` write, as far as it is asked for."""

    scenario: str
    verdict: Verdict
    told: _Told
    search: _Search | None = None
    refused: str = ""

    @property
    def is_answer(self) -> bool:
        """Whether its engine came to an end by itself."""
        return self.told.outcome.ending not in ("lost", "timed out")

    def shown(self) -> Shown:
        """The landing that does most harm; without any what is wrong has nothing to do with one."""
        if self.refused:
            return REFUSED
        found = _Search() if self.search is None else self.search
        first = min(found.conflicts, key=lambda one: EFFECTS.index(one.effect), default=None)
        is_pass = self.verdict in (Verdict.PROVED, Verdict.BENIGN, Verdict.INCONCLUSIVE)
        signature = "wrong/held" if first is None else first.signature
        return Shown(
            verdict=self.verdict,
            signature=None if is_pass else signature,
            holds=() if is_pass or first is None else first.holds,
            schedules=1 + found.runs,
            delivered=sum(map(len, self.told.delivered.values())),
        )


# Of landings, the worst first.
EFFECTS = ("wrong", "divergent", "unknown", "benign")
