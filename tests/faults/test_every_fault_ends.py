"""Every fault ends with a verdict in every script: what the engine under test does wrong is a
finding, and never an error of the harness.

CI looks at a sample by place: each fault in one script of its own, so that every script has some.
Nightly all of them are looked at (`make nightly`).
"""

from __future__ import annotations

import pytest

from racegate.check.checker import Checker
from racegate.check.repro.search import search
from racegate.faults.catalogue import FAULTS
from racegate.history.finding import Verdict
from support import IS_NIGHTLY, NAMES, scenario

BY_NAME = {fault.name: fault for fault in FAULTS}
SAMPLE = [
    (fault, name)
    for number, fault in enumerate(BY_NAME)
    for place, name in enumerate(NAMES)
    if IS_NIGHTLY or place == (7 * number) % len(NAMES)
]


@pytest.mark.parametrize(("fault", "name"), SAMPLE, ids=" ".join)
def test_a_fault_ends_with_a_verdict(fault: str, name: str) -> None:
    found = search(Checker(scenario(name)), fault=BY_NAME[fault], is_audited=True)
    assert found.verdict is not Verdict.BROKEN_HARNESS, found.breakages


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("pinned-input-overwrite", "cascade-prefix-hits"),
        ("row-swap-alias", "all-middle-hit"),
        ("slot-vs-row-index", "abort-in-flight"),
        ("results-kept-by-row", "slots-graphs"),
    ],
)
def test_those_that_once_broke_the_harness(fault: str, name: str) -> None:
    found = search(Checker(scenario(name)), fault=BY_NAME[fault], is_audited=True)
    assert found.verdict in (Verdict.CONFLICT, Verdict.DIVERGENT, Verdict.PROVED), found.breakages
