"""The held run beside the natural ones: the recorded witness of a fault, on the same device."""

from __future__ import annotations

import time
from pathlib import Path

from racegate.check.repro.replay import replay
from racegate.device.cuda.site import CudaSite
from racegate.history.replayed import ReplayOutcome
from racegate.history.witness import load_witness
from racegate.scenario.strict import StrictStruct


class HeldRun(StrictStruct, frozen=True, kw_only=True):
    """A fault under the schedule of its witness.

    witness: name of its file; outcome: what the replay showed
    schedules: run until the fault showed, 0 if it did not
    generations, steps: of the one run that shows it
    seconds: for everything, the run of the reference that it is judged by included
    run_seconds: for that run alone
    """

    fault: str
    witness: str
    device: str
    holds: tuple[str, ...]
    outcome: ReplayOutcome
    signature: str | None
    schedules: int
    generations: int
    steps: int
    seconds: float
    run_seconds: float


def run_held(fault: str, witnesses: Path, *, cuda: CudaSite | None) -> HeldRun:
    """Replays the witness of a fault once. cuda: a site with eager pacing, or the virtual device.

    Raises WitnessError.
    """
    path = witness_path(fault, witnesses)
    witness = load_witness(path)
    started = time.perf_counter()
    found = replay(witness, times=1, command=f"racegate replay {path}", cuda=cuda)
    seconds = time.perf_counter() - started
    return HeldRun(
        fault=fault,
        witness=path.name,
        device=found.last.device,
        holds=witness.holds,
        outcome=found.outcome,
        signature=found.signature,
        schedules=1 if found.outcome is ReplayOutcome.REPRODUCED else 0,
        generations=len(witness.scenario.requests),
        steps=found.last.stats.steps,
        seconds=seconds,
        run_seconds=found.last.stats.seconds,
    )


def witness_path(fault: str, witnesses: Path) -> Path:
    """Where the witness of a fault is kept."""
    return witnesses / f"{fault}.witness.json"
