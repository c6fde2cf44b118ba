"""What a run did, as counts, and whether it exercised what its scenario promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from racegate.history.observe import Boundary, Observation
from racegate.history.run import Run
from racegate.history.trace import HostAccess, OpRecord, Trace, Waited
from racegate.scenario.spec import ScenarioBase

UNFINISHED_SHOWN_MAX = 4
STARVED_STEPS_MIN = 4  # passed over for fewer, a request only waits its turn


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of one run.

    delivered: tokens, of all requests together
    overlapped_ops: operations that may run while the host prepares a later step
    boundaries: observations made, each of which is compared with the reference
    row_moves: rows that changed places; rejections: steps of a request with a rejected draft
    preemptions: requests put back to waiting; host_waits: times the host waited for the device
    schedules: schedules run, of all runs made; exercised: how often each thing happened
    """

    steps: int = 0
    ops: int = 0
    delivered: int = 0
    overlapped_ops: int = 0
    boundaries: int = 0
    row_moves: int = 0
    rejections: int = 0
    preemptions: int = 0
    host_waits: int = 0
    conflicts: int = 0
    schedules: int = 1
    seconds: float = 0.0
    exercised: dict[str, int] = {}


def make_stats(run: Run, *, conflicts: int) -> Stats:
    """The counts of one run."""
    counters = {} if run.result is None else run.result.counters
    overlapped = overlapped_ops(run.trace)
    return Stats(
        steps=0 if run.result is None else run.result.steps,
        ops=sum(isinstance(event, OpRecord) for event in run.trace.events),
        delivered=0 if run.result is None else sum(map(len, run.result.delivered.values())),
        overlapped_ops=overlapped,
        boundaries=len(run.observations),
        row_moves=counters.get("row_moves", 0),
        rejections=counters.get("rejections", 0),
        preemptions=counters.get("preemptions", 0),
        host_waits=host_waits(run.trace),
        conflicts=conflicts,
        seconds=run.seconds,
        exercised={"mrope_drifts": mrope_drifts(run.observations)}
        | counters
        | {"overlapped_ops": overlapped, "missing_drafts": missing_drafts(run.observations)},
    )


def missing_drafts(observations: Sequence[Observation]) -> int:
    """How many drafts less than k were proposed behind a row that sampled: only the device knows
    while the engine runs.
    """
    count = 0
    for seen in observations:
        if seen.boundary is Boundary.SAMPLED and "drafts" in seen.values:
            # Of an engine in another process they are lists.
            values = (seen.values["sampled"], seen.values["drafts"])
            listed = [x.tolist() if isinstance(x, np.ndarray) else x for x in values]
            for tokens, drafts in zip(*listed, strict=True):
                if tokens[0] != -1:
                    count += drafts.count(-1)
    return count


def mrope_drifts(observations: Sequence[Observation]) -> int:
    """How many times the host's three-dimensional positions of a row were ahead: only the device
    knows while the engine runs. An engine in another process counts for itself.
    """
    return sum(
        int(np.count_nonzero(seen.detail["computed_host"] != seen.values["computed"]))
        for seen in observations
        if "mrope_positions" in seen.values and "computed_host" in seen.detail
    )


def host_waits(trace: Trace) -> int:
    """How often the host waited for the device."""
    hosts = set(trace.hosts())
    return sum(
        isinstance(event, Waited) and event.lane in hosts and not event.is_dropped
        for event in trace.events
    )


def overlapped_ops(trace: Trace) -> int:
    """Operations that the host did not know complete when it began to prepare a later step.

    They may run while the host prepares: whether they did in this run is the schedule's matter.
    """
    count = 0
    hosts = trace.hosts()
    outstanding: dict[int, list[OpRecord]] = {host: [] for host in hosts}
    step = dict.fromkeys(hosts, -1)
    for event in trace.events:
        if isinstance(event, OpRecord):
            outstanding[hosts[event.lane]].append(event)
        elif isinstance(event, HostAccess) and "prepare" in event.name:
            host = event.lane
            if event.step > step[host]:
                step[host] = event.step
                unknown = [op for op in outstanding[host] if event.clock[op.lane] < op.seq]
                count += len(unknown)
                outstanding[host] = []
    return count


def vacuous(stats: Stats) -> tuple[str, ...]:
    """Why a run that came to its end showed nothing at all, if it did."""
    if stats.boundaries == 0:
        return ("boundaries: 0, nothing was compared with the reference",)
    if stats.delivered == 0:
        return ("delivered: 0, no request got as far as a token",)
    return ()


def cut_off(scenario: ScenarioBase, run: Run) -> tuple[str, ...]:
    """Why a run did not come to its end, if it did not: what is behind it nobody has seen."""
    result = run.result
    if result is None:
        return ()
    unfinished = sorted(name for name, why in result.finished.items() if why == "unfinished")
    if not unfinished and not result.in_flight:
        return ()
    starved = _starved_since(run)
    left = [
        f"request {name} did not end{starved.get(name, '')}"
        for name in unfinished[:UNFINISHED_SHOWN_MAX]
    ]
    if len(unfinished) > UNFINISHED_SHOWN_MAX:
        left.append(f"{len(unfinished) - UNFINISHED_SHOWN_MAX} more did not")
    if result.in_flight:
        left.append(f"{result.in_flight} steps were in flight")
    where = f"after {result.steps} steps, steps_max is {scenario.steps_max}"
    return (f"cut off {where}: {', '.join(left)}",)


def _starved_since(run: Run) -> dict[str, str]:
    """In words, since when requests that were scheduled once were not any more."""
    plans = [seen for seen in run.observations if seen.boundary is Boundary.SCHEDULED]
    last: dict[str, int] = {}
    for seen in plans:
        for request, *_ in seen.values.get("plan", ()):
            last[request] = seen.step
    end = plans[-1].step if plans else 0
    return {
        name: f" and starves: not scheduled since step {step}"
        for name, step in last.items()
        if step + STARVED_STEPS_MIN <= end
    }


def unmet_expectations(scenario: ScenarioBase, stats: Stats) -> tuple[str, ...]:
    """What the scenario says it exercises and this run did not."""
    return unmet_counts(msgspec.structs.asdict(scenario.expect), stats.exercised)


def unmet_counts(least: Mapping[str, int], counted: Mapping[str, int]) -> tuple[str, ...]:
    """What was counted less often than it had to be, in words, by its name. What nobody counted
    happened 0 times.
    """
    return tuple(
        f"{name}: {counted.get(name, 0)}, the scenario expects at least {minimum}"
        for name, minimum in least.items()
        if counted.get(name, 0) < minimum
    )
