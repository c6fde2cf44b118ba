"""docs/faults.md is what the catalogue says now, and the catalogue has every number."""

from __future__ import annotations

from racegate.faults.catalogue import FAULTS, VARIANTS
from racegate.report.fault_page import fault_page
from repository import ROOT

CAUSES_TOLD = 67


def test_the_page_is_not_stale() -> None:
    page = (ROOT / "docs" / "faults.md").read_text()
    assert page == fault_page(), "make it again: racegate faults list --markdown docs/faults.md"


def test_every_cause_has_a_fault_and_every_fault_an_entry() -> None:
    assert {fault.number for fault in FAULTS} == set(range(1, CAUSES_TOLD + 1))
    page = fault_page()
    for fault in FAULTS + VARIANTS:
        assert f"### {fault.name}\n" in page or f"* `{fault.name}`: " in page
