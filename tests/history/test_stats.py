"""What a run did, as counts: of histories that are told event by event."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from racegate.history.observe import Boundary, Observation
from racegate.history.run import EngineResult, Run
from racegate.history.stats import (
    STARVED_STEPS_MIN,
    Stats,
    cut_off,
    make_stats,
    missing_drafts,
    overlapped_ops,
    unmet_expectations,
    vacuous,
)
from racegate.history.trace import Access, HostAccess, OpRecord, Trace
from racegate.history.witness import file_of, load_witnesses
from racegate.scenario.expect import Expect
from racegate.scenario.spec import OwnScenario

SCENARIO = OwnScenario(name="s", title="", requests=())


def run_of(
    *observations: Observation, events: Sequence[Any] = (), result: EngineResult | None = None
) -> Run:
    return Run(
        trace=Trace(lanes=("host", "s0"), events=tuple(events)),
        observations=observations,
        edges=(),
        result=result,
        stopped=None,
        seconds=0.0,
    )


def ended(**finished: str) -> EngineResult:
    return EngineResult(
        delivered=dict.fromkeys(finished, ()),
        finished=finished,
        steps=7,
        counters={},
        unmet_events=(),
    )


def seen(boundary: Boundary, step: int = 0, **values: Any) -> Observation:
    return Observation(step=step, boundary=boundary, values=values)


def test_nothing_counted_is_nothing_seen() -> None:
    """Of no run, and of a run that did nothing."""
    for stats in (Stats(), make_stats(run_of(result=ended()), conflicts=0)):
        counts = {name: getattr(stats, name) for name in Stats.__struct_fields__}
        assert counts.pop("schedules") == 1, "the run itself"
        assert counts.pop("steps") == (0 if stats == Stats() else 7)
        assert not any(counts.pop("exercised").values())
        assert not any(counts.values()), counts
        assert vacuous(stats) == ("boundaries: 0, nothing was compared with the reference",)


def test_drafts_are_missing_behind_rows_that_sampled() -> None:
    sampled = seen(Boundary.SAMPLED, sampled=[[5, 6], [-1, -1], [7, -1]], drafts=[[3, -1]] * 3)
    assert missing_drafts([sampled]) == 2
    assert missing_drafts([sampled, sampled]) == 4
    assert missing_drafts([seen(Boundary.SAMPLED, sampled=[[5]])]) == 0
    assert missing_drafts([seen(Boundary.PREPARED, sampled=[[5]], drafts=[[-1]])]) == 0


def op(seq: int) -> OpRecord:
    return OpRecord(f"kernel:{seq}", 0, 1, seq, (0, seq), ())


def prepares(step: int, *, knows: int, name: str = "host:prepare_inputs") -> HostAccess:
    return HostAccess(name, step, step, (step, knows), Access("b", 1, 1, False))


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([op(1), op(2), prepares(0, knows=1)], 1),
        ([op(1), prepares(0, knows=0), op(2), prepares(0, knows=0)], 1),
        ([op(1), prepares(0, knows=0), op(2), prepares(1, knows=1)], 2),
        ([op(1), prepares(0, knows=0, name="host:process")], 0),
        ([prepares(0, knows=0), op(1)], 0),
    ],
)
def test_operations_overlap_where_a_step_begins_to_be_prepared_without_knowing_them(
    events: list[Any], count: int
) -> None:
    """Once for each step: what it does later in it is of the same preparation."""
    assert overlapped_ops(Trace(lanes=("host", "s0"), events=tuple(events))) == count


def test_operations_overlap_with_the_host_of_their_own_rank() -> None:
    """What another rank's host begins to prepare says nothing of them, and begins no step of it."""
    of_other = OpRecord("kernel:1.rank1", 0, 3, 1, (0, 0, 0, 1), ())
    other = HostAccess("host:prepare.rank1", 1, 1, (0, 0, 1, 0), Access("b", 1, 1, False), 2)
    events = (op(1), of_other, prepares(0, knows=0), prepares(1, knows=0), other, other)
    lanes = ("host", "s0", "host.rank1", "s0.rank1")
    assert overlapped_ops(Trace(lanes=lanes, events=events[:3])) == 1
    assert overlapped_ops(Trace(lanes=lanes, events=events)) == 2
    again = prepares(2, knows=0)
    assert overlapped_ops(Trace(lanes=lanes, events=(*events, again))) == 2, "it was counted before"


@pytest.mark.parametrize("passed_over", range(STARVED_STEPS_MIN + 2))
def test_who_is_passed_over_often_enough_starves(passed_over: int) -> None:
    plans = [seen(Boundary.SCHEDULED, 3, plan=[("A", 1, 0)])]
    plans += [seen(Boundary.SCHEDULED, 4 + n, plan=[("B", 1, 0)]) for n in range(passed_over)]
    (said,) = cut_off(SCENARIO, run_of(*plans, result=ended(A="unfinished", B="unfinished")))
    assert ("A did not end and starves: not scheduled since step 3" in said) == (
        passed_over >= STARVED_STEPS_MIN
    )
    assert "B did not end and" not in said


def test_what_was_never_exercised_was_seen_never() -> None:
    asked = OwnScenario(name="s", title="", requests=(), expect=Expect(condense_moves=1))
    assert unmet_expectations(asked, Stats()) == (
        "condense_moves: 0, the scenario expects at least 1",
    )
    assert unmet_expectations(asked, Stats(exercised={"condense_moves": 1})) == ()


class TestWitnesses:
    FOLDER = Path(__file__).parents[2] / "scenarios" / "witnesses"

    def test_they_come_by_their_names(self, monkeypatch: pytest.MonkeyPatch) -> None:
        some = sorted(self.FOLDER.glob("draft-*.witness.json"))
        monkeypatch.setattr(Path, "glob", lambda folder, pattern: iter(some[::-1]))
        assert [path for path, _ in load_witnesses(self.FOLDER)] == some

    def test_a_file_is_indented_by_one_for_people(self) -> None:
        assert file_of(b'{"a":[1]}') == b'{\n "a": [\n  1\n ]\n}\n'
