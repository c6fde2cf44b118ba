"""A Hypothesis state machine over what a serving engine sees, checked after every step.

Rules: submit, step, abort, preempt (a preempted request resumes by itself), starve (a small token
    budget), skip (a scheduling gap), hold an operation and release it. The script so far is run
    through both engines after each step.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from racegate.check.checker import Checker
from racegate.faults.fault import Fault
from racegate.history.schedule import FORCED, Hold, Schedule
from racegate.scenario.settings import CacheMode, EngineSpec
from racegate.scenario.spec import Abort, Budget, Event, Gap, OwnScenario, Preempt, Request

HELD = ("d2h:valid_count", "d2h:sampled", "h2d:input_ids", "kernel:sample", "kernel:layer.0")
REQUESTS_MAX = 5
STEPS_MAX = 14


class EngineMachine(RuleBasedStateMachine):
    """Subclass and set `fault` or `engine` for another engine under test."""

    fault: Fault | None = None
    engine = EngineSpec(model_len_max=40, rows_max=3, cache_mode=CacheMode.NONE)

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[Request] = []
        self.events: dict[tuple[type, int, str | None], Event] = {}
        self.holds: list[Hold] = []
        self.steps = 0

    @precondition(lambda self: len(self.requests) < REQUESTS_MAX)
    @rule(
        length=st.sampled_from((1, 4, 5, 3, 9)),
        max_tokens=st.integers(1, 10),
        accepts=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    )
    def submit(self, length: int, max_tokens: int, accepts: list[int]) -> None:
        """A request arrives."""
        number = len(self.requests)
        prompt = tuple((7 * number + 3 * i) % 97 for i in range(length))
        self.requests.append(
            Request(
                name=f"R{number}",
                arrive=self.steps,
                prompt=prompt,
                max_tokens=max_tokens,
                accepts=tuple(accepts),
            )
        )

    @precondition(lambda self: self.requests)
    @rule(data=st.integers(0, REQUESTS_MAX - 1))
    def preempt(self, data: int) -> None:
        """The scheduler takes the blocks of a request; it resumes by itself."""
        self._add(Preempt(step=self.steps, request=self._name(data)))

    @precondition(lambda self: self.requests)
    @rule(data=st.integers(0, REQUESTS_MAX - 1))
    def abort(self, data: int) -> None:
        """The client gives a request up."""
        self._add(Abort(step=self.steps, request=self._name(data)))

    @precondition(lambda self: self.requests)
    @rule(data=st.integers(0, REQUESTS_MAX - 1))
    def skip(self, data: int) -> None:
        """A request is not scheduled in a step."""
        self._add(Gap(step=self.steps, request=self._name(data)))

    @rule(tokens=st.integers(0, 6))
    def starve(self, tokens: int) -> None:
        """A step has a small token budget."""
        self._add(Budget(step=self.steps, tokens=tokens))

    @rule(op=st.sampled_from(HELD))
    def hold(self, op: str) -> None:
        """An operation of a step is held until a wait forces it."""
        self.holds.append(Hold(op=f"{op}@{self.steps}", until=FORCED))

    @precondition(lambda self: self.holds)
    @rule()
    def release(self) -> None:
        """The last hold ends at the next decision of the scheduler."""
        last = self.holds.pop()
        self.holds.append(Hold(op=last.op, until=f"host:schedule@{self.steps}"))

    @precondition(lambda self: self.requests and self.steps < STEPS_MAX)
    @rule(count=st.integers(1, 3))
    def step(self, count: int) -> None:
        """The engine goes on."""
        self.steps = min(self.steps + count, STEPS_MAX)

    @invariant()
    def nothing_is_wrong(self) -> None:
        """The script so far, through both engines."""
        if not self.requests or not self.steps:
            return
        arrived = tuple(request for request in self.requests if request.arrive < self.steps)
        names = {request.name for request in arrived}
        events = tuple(
            event
            for event in self.events.values()
            if event.step < self.steps and getattr(event, "request", None) in {None, *names}
        )
        if not arrived:
            return
        scenario = OwnScenario(
            name="machine",
            title="generated step by step",
            steps_max=self.steps,
            engine=self.engine,
            requests=arrived,
            events=events,
        )
        schedule = Schedule(holds=tuple(self.holds))
        result = Checker(scenario).run(schedule=schedule, fault=self.fault)
        if result.findings:
            first = result.findings[0]
            raise AssertionError(f"{first.signature}: {first.message}; holds {schedule.texts()}")

    def _add(self, event: Event) -> None:
        key = (type(event), event.step, getattr(event, "request", None))
        self.events.setdefault(key, event)

    def _name(self, data: int) -> str:
        return self.requests[data % len(self.requests)].name
