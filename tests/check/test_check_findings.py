"""What oracles saw becomes findings: one each, of the first place; and digests tell runs apart."""

from __future__ import annotations

import dataclasses
from random import Random

import msgspec

from racegate.check.findings import digest_of, from_violations
from racegate.history.observe import Boundary
from racegate.oracles.invariants import Violation
from support import checker


def violation(invariant: str, step: int) -> Violation:
    return Violation(
        invariant=invariant,
        step=step,
        boundary=Boundary.PREPARED,
        request=None,
        message=f"wrong in step {step}",
    )


def test_an_invariant_is_one_finding_of_the_first_place() -> None:
    seen = [violation(name, step) for step in (3, 5, 8) for name in ("I1", "I2")]
    found = from_violations(seen)
    assert [(one.field, one.step, one.actual) for one in found] == [
        ("I1", 3, "wrong in step 3"),
        ("I2", 3, "wrong in step 3"),
    ]


def test_a_digest_is_of_every_place_and_value() -> None:
    run = checker("finish-and-condense").execute()
    whole = digest_of(run, ())
    number = Random(1).randrange(len(run.observations))
    place = run.observations[number]
    other = next(boundary for boundary in Boundary if boundary is not place.boundary)
    field = next(iter(place.values))
    changes = (
        {"step": place.step + 1},
        {"boundary": other},
        {"values": {**place.values, field: "something else"}},
    )
    for change in changes:
        observations = list(run.observations)
        observations[number] = msgspec.structs.replace(place, **change)
        changed = dataclasses.replace(run, observations=tuple(observations))
        assert digest_of(changed, ()) != whole, change
    assert digest_of(checker("finish-and-condense").execute(), ()) == whole
