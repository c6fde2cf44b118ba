"""What a campaign keeps of a finding: the smallest run in which a user sees it, or how far it was
looked for one.
"""

from __future__ import annotations

import msgspec
import pytest

from pictured import path_of
from racegate.check.repro.minimise import FailureSight, minimise
from racegate.faults.catalogue import find_fault
from racegate.history.finding import is_seen
from racegate.history.schedule import parse_schedule
from racegate.history.witness import load_witness
from racegate.jobs.generated import GeneratedFinding, minimised

RACE = "accepted-copy-after-row-move"  # in its witness no token is wrong


def found(name: str) -> GeneratedFinding:
    witness = load_witness(path_of(name))
    return GeneratedFinding(
        signature=witness.signature, index=0, witness=witness, runs=0, is_minimal=False
    )


def test_a_campaign_goes_on_to_a_run_that_a_user_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    one = found(RACE)
    fault = find_fault(RACE)
    small = minimised(one, fault, on_run=lambda made: None)
    assert (small.signature, small.is_minimal) == (one.signature, True)
    witness = load_witness(path_of(RACE))
    schedule = parse_schedule(list(witness.holds))
    plain = minimise(witness.scenario, schedule, fault)
    assert not is_seen(plain.result.findings), "as it was written no token is wrong"
    assert small.looked > 0
    if not small.is_seen:
        pytest.fail(f"none of {small.looked} schedules shows it to a user")


def test_what_nobody_sees_says_how_far_it_was_looked() -> None:
    """A scenario that ends before the wrong count could turn a token."""
    one = found(RACE)
    witness = load_witness(path_of(RACE))
    scenario = msgspec.structs.replace(witness.scenario, steps_max=5)
    one = msgspec.structs.replace(one, witness=msgspec.structs.replace(witness, scenario=scenario))
    small = minimised(one, find_fault(RACE), on_run=lambda made: None)
    assert (small.is_seen, small.looked > 0) == (False, True)


def test_minimal_and_still_seen() -> None:
    """Of a run that a user sees, the smallest that a user sees, not the smallest of all."""
    witness = load_witness(path_of("row-swap-alias-seed"))
    schedule, fault = parse_schedule(list(witness.holds)), find_fault(str(witness.fault))
    small = minimise(witness.scenario, schedule, fault, sight=FailureSight.SEEN)
    assert is_seen(small.result.findings)
