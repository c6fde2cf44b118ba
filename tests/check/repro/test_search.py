"""The ladder, canonical holds, minimising."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.check.repro.minimise import FailureSight, _Trials, minimise, with_few_holds
from racegate.check.repro.search import BUDGET, is_seen_with, search
from racegate.explore.canonical import canonical_holds
from racegate.explore.ladder import Noting, Rung, reversals
from racegate.explore.samplers.pos import PosStepper
from racegate.explore.shrink import Case, shrink
from racegate.faults.catalogue import FAULTS, find_fault
from racegate.faults.fault import Fault, FaultKind
from racegate.history.finding import Finding, FindingKind, Verdict, is_seen, signature_of
from racegate.history.outcome import RunResult
from racegate.history.run import Run
from racegate.history.schedule import LATE, Schedule, parse_schedule
from racegate.oracles.ordering import find_conflicts
from racegate.scenario.settings import GraphMode
from support import IS_NIGHTLY, checker, scenario

SEEDED = [fault for fault in FAULTS if fault.kind is not FaultKind.CONTROL]
# Each fault's committed witness was minimised by the same code; nightly all are minimised again.
SAMPLE = SEEDED if IS_NIGHTLY else SEEDED[::5]


def test_a_clean_scenario_is_proved_in_one_schedule() -> None:
    result = search(checker("steady-mixed-accepts"))
    assert result.verdict is Verdict.PROVED
    assert result.search is not None
    assert (result.search.schedules, result.search.stage) == (1, Rung.EAGER)


def test_a_race_that_loses_late_is_found_on_the_second_rung() -> None:
    fault = find_fault("accepted-copy-after-row-move")
    result = search(checker("finish-and-condense"), fault=fault)
    assert result.verdict is Verdict.DIVERGENT
    assert result.search is not None
    assert (result.search.schedules, result.search.stage) == (2, Rung.LATE)


def test_a_race_that_does_no_harm_is_benign_when_all_classes_were_run() -> None:
    fault = find_fault("accepted-double-remap")
    result = search(checker("finish-and-condense"), fault=fault)
    assert result.verdict is Verdict.BENIGN
    assert result.search is not None
    assert result.search.is_complete
    assert (result.search.classes, result.search.shared) == (3, 1)
    assert {finding.kind for finding in result.findings} == {"conflict"}


def test_a_budget_that_is_used_up_leaves_a_conflict_and_an_estimate() -> None:
    fault = find_fault("accepted-double-remap")
    made: list[int] = []
    result = search(checker("depth-three"), fault=fault, budget=16, on_run=made.append)
    assert result.verdict is Verdict.CONFLICT
    found = result.search
    assert found is not None and found.estimate is not None and found.classes is not None
    assert not found.is_complete
    assert made == [*range(1, found.schedules + 1)] == [*range(1, 17)]
    assert found.estimate >= found.classes
    left = (found.estimate - found.classes) * found.seconds / found.schedules
    assert found.seconds_left == pytest.approx(left)


def test_reversals_look_at_copy_targets_first() -> None:
    fault = find_fault("pinned-input-overwrite")
    run = checker("finish-and-condense").execute(fault=fault)
    both = find_fault("accepted-copy-after-row-move")
    other = checker("finish-and-condense").execute(fault=both)
    conflicts = [*find_conflicts(run.trace)[:3], *find_conflicts(other.trace)]
    first = reversals(conflicts)[0]
    assert first.op.startswith("d2h:accepted_counts")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("finish-and-condense", "accepted-copy-after-row-move"),
        ("prefill-to-decode-swap", "accepted-double-remap"),
        ("all-rejected-all-accepted", "accepted-read-before-copy"),
        ("steady-mixed-accepts", "pinned-input-overwrite"),
    ],
)
def test_a_random_failing_order_comes_down_to_a_few_holds_that_replay(
    name: str, fault: str
) -> None:
    found = 0
    for seed in range(12):
        noting = Noting(PosStepper(seed))
        run = checker(name).execute(stepper=noting, fault=find_fault(fault))
        stepped = checker(name).judge(run, fault=find_fault(fault))
        if all(finding.kind == "conflict" for finding in stepped.findings):
            continue
        found += 1
        results = [
            checker(name).run(
                schedule=canonical_holds(noting.steps, fine=fine), fault=find_fault(fault)
            )
            for fine in (False, True)
        ]
        signatures = {signature_of(result.findings) for result in results}
        assert signature_of(stepped.findings) in signatures
    assert found


def test_a_passing_order_comes_down_to_holds_that_pass() -> None:
    for seed in range(5):
        noting = Noting(PosStepper(seed))
        checker("three-row-cycle").execute(stepper=noting)
        # Race-free: nothing that was turned round conflicts.
        assert canonical_holds(noting.steps, fine=True) == Schedule()


def _start(fault: Fault) -> Schedule:
    if fault.kind is FaultKind.LOGIC or fault.name == "accepted-double-remap":
        return Schedule()
    return LATE


@pytest.mark.parametrize("fault", SAMPLE, ids=lambda fault: fault.name)
def test_a_failure_shrinks_to_few_holds_and_requests(fault: Fault) -> None:
    small = minimise(scenario(fault.scenarios[0]), _start(fault), fault)
    case = small.case
    assert small.is_minimal
    assert small.runs <= 300
    assert len(case.schedule.holds) <= 2
    assert len(case.scenario.requests) <= 3
    assert all(hold.realised for hold in small.result.holds)
    _assert_every_part_is_needed(case, fault, small.signature)


def _assert_every_part_is_needed(case: Any, fault: Fault, signature: str) -> None:
    holds = case.schedule.holds
    for index in range(len(holds)):
        fewer = Schedule(holds=holds[:index] + holds[index + 1 :])
        result = Checker(case.scenario).run(schedule=fewer, fault=fault)
        assert signature_of(result.findings) != signature
    for request in case.scenario.requests:
        rest = tuple(r for r in case.scenario.requests if r is not request)
        if not rest:
            continue
        without = msgspec.structs.replace(case.scenario, requests=rest, events=())
        result = Checker(without).run(schedule=case.schedule, fault=fault)
        is_realised = all(hold.realised for hold in result.holds)
        assert not is_realised or signature_of(result.findings) != signature


def test_steps_named_after_requests_survive_a_smaller_scenario() -> None:
    fault = find_fault("accepted-copy-after-row-move")
    named = parse_schedule(["d2h:accepted_counts@C.0 until host:condense@C.1"])
    whole = checker("finish-and-condense").run(schedule=named, fault=fault)
    by_number = parse_schedule(["d2h:accepted_counts@3 until host:condense@4"])
    assert signature_of(whole.findings) == signature_of(
        checker("finish-and-condense").run(schedule=by_number, fault=fault).findings
    )
    base = scenario("finish-and-condense")
    later = tuple(
        msgspec.structs.replace(request, arrive=request.arrive + 1) for request in base.requests
    )
    shifted = msgspec.structs.replace(base, requests=later)
    result = Checker(shifted).run(schedule=named, fault=fault)
    assert all(hold.realised for hold in result.holds)
    assert signature_of(result.findings) == signature_of(whole.findings)


def test_the_budget_is_never_exceeded() -> None:
    fault = find_fault("accepted-double-remap")
    for budget in (1, 2, 9, 12):
        result = search(checker("depth-three"), fault=fault, budget=budget)
        assert result.stats.schedules <= max(budget, 1)
    assert BUDGET >= 10


@pytest.mark.parametrize("runs_max", [12, 25])
def test_a_failure_is_minimised_in_no_more_runs_than_are_allowed(runs_max: int) -> None:
    """And one more, whose result is shown."""
    made: list[int] = []
    fault = find_fault("accepted-copy-after-row-move")
    small = minimise(
        scenario(fault.scenarios[0]), LATE, fault, runs_max=runs_max, on_run=made.append
    )
    assert not small.is_minimal
    assert small.runs == made[-1] == runs_max + 1


@pytest.mark.parametrize("was_seen", [False, True])
def test_what_a_user_sees_stays_what_a_user_sees(*, was_seen: bool) -> None:
    """A smaller case that only has the conflict does not show the wrong value that was there."""
    trials = _Trials(None)
    trials.signature, trials.is_seen = "s", was_seen
    shown = {
        kind: trials.is_shown(
            RunResult(
                scenario="s",
                device="d",
                verdict=Verdict.CONFLICT,
                findings=(Finding(kind=kind, signature="s", message=""),),
            )
        )
        for kind in (FindingKind.CONFLICT, FindingKind.LOSS)
    }
    assert shown == {FindingKind.CONFLICT: not was_seen, FindingKind.LOSS: True}


def test_a_failure_is_gone_on_with_where_a_user_sees_it_or_what_is_beside_it() -> None:
    def found(*kinds: FindingKind) -> list[Finding]:
        return [Finding(kind=kind, signature=kind.value, message="") for kind in kinds]

    race, loss = FindingKind.CONFLICT, FindingKind.LOSS
    assert is_seen_with(race.value, found(race, loss))
    assert not is_seen_with(race.value, found(race)) and not is_seen_with(race.value, found(loss))


@pytest.mark.parametrize("is_audited", [False, True])
def test_the_first_run_of_a_search_is_audited_and_all_others_share(*, is_audited: bool) -> None:
    noted: list[tuple[bool, bool]] = []

    class Noting(Checker):
        def execute(self, **given: Any) -> Run:
            noted.append((given["is_audited"], given["memo"] is not None))
            return super().execute(**given)

    fault = find_fault("accepted-copy-after-row-move")
    search(Noting(scenario(fault.scenarios[0])), fault=fault, is_audited=is_audited)
    assert noted == [(is_audited, not is_audited), (False, True)]


def test_the_smallest_case_shows_a_wrong_value_if_it_has_to() -> None:
    """Without that it is the conflict alone; what was late in everything is then one operation."""
    fault = find_fault("accepted-read-before-copy")
    of = scenario(fault.scenarios[0])
    seen = {
        sight: is_seen(minimise(of, LATE, fault, runs_max=60, sight=sight).result.findings)
        for sight in FailureSight
    }
    assert seen == {FailureSight.ANY: False, FailureSight.SEEN: True}
    late = Checker(of).run(schedule=LATE, fault=fault)
    few = with_few_holds(Checker(of), late, fault)
    assert len(few.schedule) == 1 and "*" not in few.schedule[0]
    assert signature_of(few.findings) == signature_of(late.findings) and is_seen(few.findings)


def test_wrong_schedules_are_told_apart_by_signature() -> None:
    minimised = minimise(
        scenario("finish-and-condense"), LATE, find_fault("accepted-copy-after-row-move")
    )
    assert minimised.signature == "ownership/accepted_counts_cpu/host:prepare_inputs"


def test_nothing_to_minimise_is_an_error() -> None:
    with pytest.raises(ValueError, match="nothing is wrong"):
        minimise(scenario("steady-mixed-accepts"), LATE, None)


def test_graphs_are_left_out_where_a_failure_does_not_need_them() -> None:
    start = Case(scenario=scenario("graph-uniform-decode"), schedule=Schedule())
    plain = shrink(start, lambda case: True)
    assert plain.case.scenario.engine.graph_mode is GraphMode.EAGER

    def has_graphs(case: Case) -> bool:
        return case.scenario.engine.graph_mode is GraphMode.FULL_DECODE

    replayed = shrink(start, has_graphs).case.scenario.engine
    assert (replayed.graph_mode, replayed.capture_rows) == (GraphMode.FULL_DECODE, (1,))
