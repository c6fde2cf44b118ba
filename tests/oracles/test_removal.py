"""What each oracle alone can see: switched off, something is lost that no other oracle shows in the
same run.
"""

from __future__ import annotations

import msgspec
import pytest

from racegate.faults.catalogue import find_fault
from racegate.oracles.invariants import PREDICATES, find_violations
from racegate.oracles.losslessness import find_losses
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.ownership import find_misowned
from racegate.oracles.stepwise import find_divergence
from racegate.schedule import Schedule, parse_schedule
from racegate.verdict import FindingKind
from support import NAMES, checker


def kinds(name: str, fault: str, *holds: str) -> set[FindingKind]:
    result = checker(name).run(schedule=parse_schedule(holds), fault=find_fault(fault))
    return {finding.kind for finding in result.findings}


def test_only_the_ordering_oracle_sees_a_race_in_an_eager_run() -> None:
    fault = "accepted-read-before-copy"
    assert kinds("all-rejected-all-accepted", fault) == {FindingKind.CONFLICT}


def test_only_the_ownership_oracle_sees_a_wrong_owner_with_the_right_value() -> None:
    # Both rows accepted the same count, so the wrong row's value is right by luck.
    fault = find_fault("accepted-copy-after-row-move")
    schedule = parse_schedule(["d2h:accepted_counts@2 until host:rotate@3"])
    result = checker("three-row-cycle").run(schedule=schedule, fault=fault)
    assert FindingKind.OWNERSHIP in {finding.kind for finding in result.findings}


def test_only_the_stepwise_oracle_sees_a_wrong_drafter_input() -> None:
    # Verification is lossless: the delivered tokens are right, only acceptance suffers.
    seen = kinds("chunked-prefill-backup-token", "backup-token-inflated-index")
    assert seen == {FindingKind.DIVERGENCE}


def test_the_losslessness_oracle_needs_no_observations() -> None:
    run = checker("steady-mixed-accepts").execute(fault=find_fault("correction-partial-fields"))
    assert run.result is not None
    plain = {r.name: t for r, t in zip(*_plain("steady-mixed-accepts"), strict=True)}
    assert find_losses(run.result.delivered, plain, run.result.finished)


def _plain(name: str) -> tuple[tuple, tuple]:
    from racegate_reference.decoding import plain_decode

    scenario = checker(name).scenario
    requests = scenario.requests
    return requests, tuple(plain_decode(scenario, request) for request in requests)


def test_the_invariants_need_no_reference() -> None:
    run = checker("steady-mixed-accepts").execute(fault=find_fault("correction-partial-fields"))
    violations = find_violations(run.observations, checker("steady-mixed-accepts").scenario)
    assert "I-32" in {violation.invariant for violation in violations}


@pytest.mark.parametrize("name", NAMES)
def test_every_oracle_is_silent_without_a_fault(name: str) -> None:
    run = checker(name).execute()
    assert run.result is not None
    assert find_conflicts(run.trace) == []
    assert find_misowned(run.trace) == []
    assert find_divergence(run.observations, checker(name).reference.observations) is None
    assert find_violations(run.observations, checker(name).scenario) == []


def test_every_predicate_is_looked_at_in_the_gate() -> None:
    boundaries = {o.boundary for o in checker("steady-mixed-accepts").execute().observations}
    assert boundaries == set(PREDICATES)


def test_the_stepwise_oracle_notices_any_single_changed_value() -> None:
    reference = checker("align-boundary-and-prefix-hit").reference.observations
    run = checker("align-boundary-and-prefix-hit").execute(schedule=Schedule())
    for place, observation in enumerate(run.observations):
        for field in reference[place].values:
            values = dict(observation.values)
            values[field] = _changed(values[field])
            changed = msgspec.structs.replace(observation, values=values)
            observed = (*run.observations[:place], changed, *run.observations[place + 1 :])
            found = find_divergence(observed, reference)
            if values[field] is observation.values[field]:
                continue  # an empty value has nothing to change
            assert found is not None
            assert (found.step, found.boundary) == (observation.step, observation.boundary)
            assert found.field == field.partition(".")[0]


def _changed(value):  # type: ignore[no-untyped-def]
    """The value with one part changed."""
    if hasattr(value, "dtype"):
        if value.size == 0:
            return value
        other = value.copy()
        flat = other.reshape(-1)
        flat[-1] = not flat[-1] if value.dtype == bool else flat[-1] + 1
        return other
    if isinstance(value, tuple):
        return (*value, "more")
    if not value:
        return value
    key = next(iter(value))
    return value | {key: None}
