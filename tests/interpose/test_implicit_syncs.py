"""The table of operators that make the host wait, beside what a GPU showed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from racegate.interpose.kernels.waiting import RULES, read_table, waiting_operators

REPORT = Path(__file__).parents[2] / "reports" / "interposer" / "implicit_syncs.json"
# Waits that the runtime sees by itself: a download of one value, a blocking copy.
BY_CALL = {"aten::_local_scalar_dense", "aten::copy_"}

if not REPORT.is_file():
    pytest.skip("the report of a GPU is not in this checkout", allow_module_level=True)
SEEN = json.loads(REPORT.read_text())
TABLE = waiting_operators(SEEN["torch"]) | set(RULES)
SOMETIMES = {name for row in read_table().values() for name in row}


def test_what_always_waited_on_a_gpu_is_in_the_table() -> None:
    always = {name for name, seen in SEEN["waited"].items() if seen["waited"] == seen["calls"]}
    assert always - BY_CALL <= TABLE | SOMETIMES


def test_what_always_waits_by_the_table_has_waited_on_a_gpu() -> None:
    assert not TABLE & set(SEEN["never_waited"])


def test_the_report_is_of_many_operators() -> None:
    assert len(SEEN["waited"]) + len(SEEN["never_waited"]) > 400
    assert TABLE & set(SEEN["waited"])
