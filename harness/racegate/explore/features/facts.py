"""RunFacts: what happened in one run, step by step, as far as features ask for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from racegate.history.observe import Boundary, Observation, of_rank
from racegate.history.run import EngineResult, Run
from racegate.history.trace import OpRecord, Trace
from racegate.scenario.spec import Abort, Budget, OwnScenario, Preempt

REPLAY = "graph:"
DELIVERED_ALL = ("max_tokens", "stop")


class Counts(Protocol):
    """Of a request's counters that the engine shows at a boundary, those that features read."""

    @property
    def is_waiting(self) -> bool: ...
    @property
    def blocks(self) -> tuple[int, ...]: ...
    @property
    def state_blocks(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEntry:
    """One request in one step.

    planned, computed: tokens before the step, with drafts in flight counted as accepted, and exact
    accepted: tokens that the step emitted, 1 for a discarded row
    hit: tokens of the kept prefix it was admitted with; None if it ran before
    blocks: its whole attention table
    """

    step: int
    request: str
    row: int
    tokens: int
    drafts: int
    planned: int
    computed: int
    accepted: int
    is_decode: bool
    is_discarded: bool
    hit: int | None
    blocks: tuple[int, ...]

    @property
    def settled(self) -> int:
        """Tokens whose state is final after the step."""
        rejected = 0 if self.is_discarded else self.drafts + 1 - self.accepted
        return self.computed + self.tokens - rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenStep:
    """One step with a plan. rows: requests in row order; in_flight: frames, with its own

    running, waiting: requests behind its plan; blocks: whole attention tables of both
    free_blocks, free_state_blocks: counts; published: state blocks that keep a prefix
    replayed: rows of the graphs that it replayed, 0 if none
    """

    step: int
    entries: tuple[SeenEntry, ...]
    rows: tuple[str, ...]
    preempted: tuple[str, ...]
    in_flight: int
    running: int
    waiting: tuple[str, ...]
    blocks: Mapping[str, tuple[int, ...]]
    free_blocks: int
    free_state_blocks: int
    published: frozenset[int]
    replayed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenFrame:
    """A step's output, processed. iteration: of the engine, in which that was

    delivered: by request, everything so far
    state_blocks, published: as in a step, behind the processing
    """

    step: int
    iteration: int
    delivered: Mapping[str, tuple[int, ...]]
    state_blocks: Mapping[str, tuple[int, ...]]
    published: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPreempt:
    """is_forced: an event of the scenario; otherwise for want of blocks."""

    step: int
    request: str
    is_forced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """One run that came to its end. moments: steps and frames, in the order in which they were."""

    scenario: OwnScenario
    result: EngineResult
    moments: tuple[SeenStep | SeenFrame, ...]
    preemptions: tuple[SeenPreempt, ...]

    @property
    def steps(self) -> Iterator[SeenStep]:
        return (moment for moment in self.moments if isinstance(moment, SeenStep))

    @property
    def frames(self) -> Iterator[SeenFrame]:
        return (moment for moment in self.moments if isinstance(moment, SeenFrame))

    @property
    def entries(self) -> Iterator[SeenEntry]:
        return (entry for step in self.steps for entry in step.entries)

    @property
    def decoding(self) -> Iterator[SeenEntry]:
        """Entries that decode, with drafts or without."""
        return (entry for entry in self.entries if entry.is_decode)

    def counted(self, name: str) -> bool:
        """Whether the engine's counter of that name is above 0."""
        return self.result.counters.get(name, 0) > 0

    def budget(self, step: int) -> int:
        """Tokens that a step with a plan may schedule."""
        for event in self.scenario.events:
            if isinstance(event, Budget) and event.step == step:
                return event.tokens
        return self.scenario.engine.tokens_per_step_max

    def successions(self) -> Iterator[tuple[SeenEntry, SeenEntry]]:
        """Each entry behind the last one of its request, of the same incarnation."""
        last: dict[str, SeenEntry] = {}
        for entry in self.entries:
            if entry.hit is None and entry.request in last:
                yield last[entry.request], entry
            last[entry.request] = entry

    def is_waiting(self, request: str, step: int) -> bool:
        """Whether a request that has arrived waits when a step's events of that request come."""
        entered = [e.step for e in self.entries if e.request == request and e.step <= step]
        latest = max(entered, default=-1)
        preempted = [p.step for p in self.preemptions if p.request == request and p.step <= step]
        return latest < 0 or any(latest < place for place in preempted)


def facts_of(scenario: OwnScenario, run: Run) -> RunFacts:
    """What happened in a run that came to its end, without fault.

    scenario: as it ran, with the model seed that was used
    """
    assert run.result is not None, "a run that stopped has no facts"
    forced = set(met(scenario, run.result, Preempt))
    reader = _Reader(forced, replays_in(run.trace), _iterations(scenario, run))
    seen_by_one = of_rank(run.observations)
    moments = tuple(reader.read(step, seen) for step, seen in _by_moment(seen_by_one))
    preempted = {(m.step, name) for m in moments if isinstance(m, SeenStep) for name in m.preempted}
    preempted |= reader.unplanned
    return RunFacts(
        scenario=scenario,
        result=run.result,
        moments=moments,
        preemptions=tuple(
            SeenPreempt(step=step, request=name, is_forced=(step, name) in forced)
            for step, name in sorted(preempted | forced)
        ),
    )


def replays_in(trace: Trace) -> dict[int, int]:
    """Step -> rows of the graphs that it replayed, which end their names."""
    return {
        event.step: int(event.name.partition("@")[0].rpartition(".")[2])
        for event in trace.events
        if isinstance(event, OpRecord) and event.name.startswith(REPLAY)
    }


def met(
    scenario: OwnScenario, result: EngineResult, kind: type[Preempt | Abort]
) -> list[tuple[int, str]]:
    """(step, request) of the events of a kind that had an effect, in file order."""
    word = kind.__name__.lower()
    return [
        (event.step, event.request)
        for event in scenario.events
        if isinstance(event, kind)
        and event.step < result.steps
        and f"{word} {event.request} @{event.step}" not in result.unmet_events
    ]


def _iterations(scenario: OwnScenario, run: Run) -> dict[int, int]:
    """Step of a frame -> the iteration of the engine in which it was processed."""
    assert run.result is not None
    planned = {seen.step for seen in run.observations if seen.boundary is Boundary.SCHEDULED}
    frames: deque[int] = deque()
    done: dict[int, int] = {}
    for step in range(run.result.steps):
        if step in planned:
            frames.append(step)
        if frames and (len(frames) >= scenario.engine.depth or step not in planned):
            done[frames.popleft()] = step
    return done


Moment = Mapping[str, Observation]


def _by_moment(observations: Sequence[Observation]) -> Iterator[tuple[int, Moment]]:
    """The boundaries of an issued step together, and each processed frame alone."""
    issued: dict[str, Observation] = {}
    for seen in observations:
        if seen.boundary is Boundary.PROCESSED:
            yield seen.step, {seen.boundary: seen}
            continue
        issued[seen.boundary] = seen
        if seen.boundary is Boundary.SAMPLED:
            yield seen.step, issued
            issued = {}


class _Reader:
    """Reads moments in their order; remembers who has been admitted and not preempted since.

    unplanned: (step, request) preempted for want of blocks in a step without a plan, which nothing
        observes; it is seen by what comes after
    """

    def __init__(
        self,
        forced: set[tuple[int, str]],
        replays: Mapping[int, int],
        iterations: Mapping[int, int],
    ) -> None:
        self._forced = forced
        self._replays = replays
        self._iterations = iterations
        self._last: dict[str, SeenEntry] = {}
        self._admitted: set[str] = set()
        self.unplanned: set[tuple[int, str]] = set()

    def read(self, step: int, moment: Moment) -> SeenStep | SeenFrame:
        if Boundary.PROCESSED not in moment:
            return self._issued(step, moment)
        seen = moment[Boundary.PROCESSED]
        live: Mapping[str, Counts] = seen.detail["counters"]
        iteration = self._iterations[step]
        self._forget(iteration)
        waiting = {name for name, counts in live.items() if counts.is_waiting}
        self.unplanned |= {(iteration, name) for name in waiting & self._admitted}
        self._admitted -= waiting
        return SeenFrame(
            step=step,
            iteration=iteration,
            delivered=seen.values["delivered"],
            state_blocks={name: counts.state_blocks for name, counts in live.items()},
            published=seen.detail["state_blocks_pool"].published,
        )

    def _forget(self, step: int) -> None:
        """Those that events preempted up to a step."""
        gone = {place for place in self._forced if place[0] <= step}
        self._forced = self._forced - gone
        self._admitted -= {name for _, name in gone}

    def _issued(self, step: int, moment: Moment) -> SeenStep:
        scheduled = moment[Boundary.SCHEDULED]
        live: Mapping[str, Counts] = scheduled.detail["counters"]
        waiting = tuple(name for name, counts in live.items() if counts.is_waiting)
        self._forget(step)
        self._admitted -= {*scheduled.values["preempted"], *waiting}
        entries = tuple(self._entries(step, moment))
        self._admitted |= {entry.request for entry in entries}
        self._last |= {entry.request: entry for entry in entries}
        return SeenStep(
            step=step,
            entries=entries,
            rows=moment[Boundary.PREPARED].values["rows"],
            preempted=scheduled.values["preempted"],
            in_flight=scheduled.detail["frames_in_flight"],
            running=len(live) - len(waiting),
            waiting=waiting,
            blocks={name: counts.blocks for name, counts in live.items()},
            free_blocks=len(scheduled.detail["blocks_pool"].free),
            free_state_blocks=len(scheduled.detail["state_blocks_pool"].free),
            published=scheduled.detail["state_blocks_pool"].published,
            replayed=self._replays.get(step, 0),
        )

    def _entries(self, step: int, moment: Moment) -> Iterator[SeenEntry]:
        scheduled, prepared = moment[Boundary.SCHEDULED], moment[Boundary.PREPARED]
        computed = moment[Boundary.INPUTS].values["computed"]
        accepted = moment[Boundary.SAMPLED].values["accepted"]
        rows = {name: row for row, name in enumerate(prepared.values["rows"])}
        for name, tokens, drafts in scheduled.values["plan"]:
            planned = scheduled.detail["computed"][name]
            is_decode = scheduled.detail["is_decode"][name]
            if name in self._admitted and self._starts_again(name, planned, is_decode=is_decode):
                self.unplanned.add((step - 1, name))
                self._admitted.discard(name)
            yield SeenEntry(
                step=step,
                request=name,
                row=rows[name],
                tokens=tokens,
                drafts=drafts,
                planned=planned,
                computed=int(computed[rows[name]]),
                accepted=int(accepted[rows[name]]),
                is_decode=is_decode,
                is_discarded=bool(prepared.values["discarded"][rows[name]]),
                hit=None if name in self._admitted else planned,
                blocks=scheduled.values["block_table"][name],
            )

    def _starts_again(self, name: str, planned: int, *, is_decode: bool) -> bool:
        """Whether an entry does not go on where the last one of its request ended."""
        last = self._last[name]
        return not is_decode and (last.is_decode or planned != last.planned + last.tokens)
