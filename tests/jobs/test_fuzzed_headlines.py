"""What a campaign keeps of a finding: the smallest run in which a user sees it, or how far it was
looked for one.
"""

from __future__ import annotations

from pictured import path_of
from racegate.check.checker import Checker
from racegate.check.repro.minimise import as_found
from racegate.faults.catalogue import find_fault
from racegate.history.finding import is_seen
from racegate.history.schedule import parse_schedule
from racegate.history.witness import Witness, load_witness
from racegate.jobs.generated import GeneratedFinding, minimised
from racegate.jobs.stores.witnesses import own_witness
from racegate.scenario.files import load
from support import SCENARIOS

FAULT = find_fault("accepted-copy-after-row-move")
HOLD = "d2h:accepted_counts@7 until host:condense@8"  # a count is wrong, and no token


def small_of(witness: Witness) -> GeneratedFinding:
    found = GeneratedFinding(
        signature=witness.signature, index=0, witness=witness, runs=0, is_minimal=False
    )
    return minimised(found, FAULT, on_run=lambda made: None)


def test_a_campaign_goes_on_to_the_smallest_run_that_a_user_sees() -> None:
    scenario, schedule = load(SCENARIOS / "three_row_cycle.toml"), parse_schedule([HOLD])
    result = Checker(scenario).run_judged(schedule=schedule, fault=FAULT).result
    assert result.findings and not is_seen(result.findings)
    small = small_of(as_found(scenario, result, FAULT, title="t", seed=0))
    assert (small.is_seen, small.is_minimal) == (True, True)
    assert small.looked > 0
    shown = own_witness(small.witness)
    again = Checker(shown.scenario).run_judged(
        schedule=parse_schedule(list(shown.holds)), fault=FAULT
    )
    assert is_seen(again.result.findings)
    lengths = [sum(one.max_tokens for one in each.requests) for each in (shown.scenario, scenario)]
    assert lengths[0] < lengths[1]


def test_what_no_user_sees_says_how_far_it_was_looked() -> None:
    small = small_of(load_witness(path_of("accepted-copy-after-row-move")))
    assert (small.is_seen, small.looked) == (False, 8)
