"""The search over landings, on a device that only answers what a hold would show."""

from __future__ import annotations

from racegate.interpose.explore import Verdict, search
from racegate.interpose.launch import Program
from racegate.interpose.order.findings import Finding, Side
from racegate.interpose.outcome import Ending, Observation, Outcome, Plan

PROGRAM = Program(("program.py",))


def side(label: str, *, is_write: bool, is_host: bool = False) -> Side:
    return Side(
        operation=label.partition("@")[0],
        label=label,
        lane="the host" if is_host else "stream 1",
        is_host=is_host,
        is_write=is_write,
        stack=(),
    )


def finding(first: str, *seconds: str, is_host: bool = False) -> Finding:
    return Finding(
        signature=first,
        buffer="x",
        nbytes=4,
        count=len(seconds),
        first=side(first, is_write=True, is_host=is_host),
        second=side(seconds[0], is_write=False),
        edge="",
        pairs=tuple((first, second) for second in seconds),
    )


def outcome(value: str, *findings: Finding) -> Outcome:
    seen = (Observation("value", value, value),)
    return Outcome(ending=Ending.FINISHED, findings=findings, observations=seen)


class Answers:
    """A device on which certain holds change what is observed."""

    def __init__(self, *harmful: tuple[str, str]) -> None:
        self.harmful = set(harmful)
        self.plans: list[Plan] = []

    def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
        self.plans.append(plan)
        value = "wrong" if self.harmful & set(plan.holds) else "right"
        realised = {f"{operation} until {until}": 1 for operation, until in plan.holds}
        return Outcome(
            ending=Ending.FINISHED,
            observations=(Observation("value", value, value),),
            realised=realised,
        )


def test_a_hold_that_changes_a_value_makes_the_finding_divergent() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))
    found = search(Answers(("d2h@x:1#1", "forced")), PROGRAM, base, runs_max=8)
    assert [j.verdict for j in found.judged] == [Verdict.DIVERGENT]
    assert found.judged[0].hold == (("d2h@x:1#1", "forced"),)


def test_a_landing_between_two_reads_is_tried() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1", "host@x:3#1"))
    found = search(Answers(("d2h@x:1#1", "host@x:3#1")), PROGRAM, base, runs_max=8)
    assert found.judged[0].hold == (("d2h@x:1#1", "host@x:3#1"),)


def test_benign_only_if_every_landing_was_tried() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1", "host@x:3#1"))
    found = search(Answers(), PROGRAM, base, runs_max=8)
    assert (found.is_complete, found.judged[0].verdict) == (True, Verdict.BENIGN)
    short = search(Answers(), PROGRAM, base, runs_max=1)
    assert (short.is_complete, short.judged[0].verdict) == (False, Verdict.CONFLICT)


def test_nothing_observed_is_not_benign() -> None:
    base = Outcome(ending=Ending.FINISHED, findings=(finding("d2h@x:1#1", "host@x:2#1"),))

    class Silent(Answers):
        def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
            return Outcome(ending=Ending.FINISHED)

    assert search(Silent(), PROGRAM, base, runs_max=8).judged[0].verdict is Verdict.CONFLICT


def test_a_hold_that_kept_nothing_back_tried_nothing() -> None:
    base = outcome("right", finding("d2h@x:1#1", "host@x:2#1"))

    class Unrealised(Answers):
        def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
            return outcome("right")

    found = search(Unrealised(), PROGRAM, base, runs_max=8)
    assert found.judged[0].verdict is Verdict.BENIGN or not found.is_complete


def test_host_threads_and_graphs_are_never_called_benign() -> None:
    for first, is_host in (("host write@x:1#1", True), ("graph@x:1#1", False)):
        base = outcome("right", finding(first, "h2d@x:2#1", is_host=is_host))
        found = search(Answers(), PROGRAM, base, runs_max=8)
        assert found.judged[0].verdict is Verdict.CONFLICT
