"""Many scenarios drawn from seeds, each judged with its landings; a kind of harm is told once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from racegate.history.finding import Verdict
from racegate.order.recorder import place_of
from racegate.targets.common.cell import Runs
from racegate.targets.common.judge import TargetVerdict, judge
from racegate.targets.common.sensitivity import Sensitivity
from racegate.targets.common.witnesses.witness import witnesses_of
from racegate.targets.common.words import wrong_lines
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.generate import scenario_of
from racegate.targets.vllm.witness import EngineWitness


class CountingRuns(Runs, Protocol):
    """An engine that knows what its runs cost."""

    runs: int
    cpu_s: float


class SeedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """What one seed gave. harm: places of operations whose landings do harm, or what was wrong when
    nothing was held
    """

    seed: int
    verdict: Verdict
    conflicts: int
    runs: int
    harm: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()


class Campaign(msgspec.Struct, frozen=True, kw_only=True):
    """runs: of the engine; cpu_s: of their processes, the engine's start apart
    runs_per_minute: by that CPU time, so for one core
    """

    cell: Cell
    seeds: tuple[SeedVerdict, ...]
    witnesses: tuple[EngineWitness, ...]
    runs: int
    cpu_s: float
    sensitivity: Sensitivity

    @property
    def runs_per_minute(self) -> float:
        return 60 * self.runs / self.cpu_s if self.cpu_s else 0.0


def search_seeds(
    engine: CountingRuns,
    cell: Cell,
    seeds: Iterable[int],
    *,
    sensitivity: Sensitivity,
    runs_max: int,
    on_seed: Callable[[SeedVerdict], None] | None = None,
) -> Campaign:
    """One witness per kind of harm: the operation's place and the landing's effect."""
    done: list[SeedVerdict] = []
    witnesses: dict[tuple[str, str], EngineWitness] = {}
    runs, cpu_s = engine.runs, engine.cpu_s
    for seed in seeds:
        scenario = scenario_of(seed)
        judged = judge(engine, scenario, cell, sensitivity=sensitivity, runs_max=runs_max)
        for witness in witnesses_of(EngineWitness, judged, scenario):
            witnesses.setdefault((_place(witness), witness.effect), witness)
        done.append(_seed(seed, judged))
        if on_seed is not None:
            on_seed(done[-1])
    return Campaign(
        cell=cell,
        seeds=tuple(done),
        witnesses=tuple(witnesses.values()),
        runs=engine.runs - runs,
        cpu_s=round(engine.cpu_s - cpu_s, 1),
        sensitivity=sensitivity,
    )


def _place(witness: EngineWitness) -> str:
    return place_of(witness.landing[0].op)


def _seed(seed: int, judged: TargetVerdict) -> SeedVerdict:
    search = judged.search
    landings = [c.landing for c in search.conflicts if c.landing] if search is not None else []
    harm = (*wrong_lines(judged.shown), *(place_of(landing.holds[0].op) for landing in landings))
    return SeedVerdict(
        seed=seed,
        verdict=judged.verdict,
        conflicts=len(judged.shown.findings),
        runs=0 if search is None else search.runs,
        harm=tuple(dict.fromkeys(harm)),
        unmet=(*judged.unmet, *([judged.message] if judged.message else [])),
    )
