"""The survey of kernel libraries: its page has the table of its records."""

from __future__ import annotations

from pathlib import Path

from survey_table import records_in, table

KERNELS = Path(__file__).parents[2] / "reports" / "kernels"


def test_the_page_has_the_table_of_the_records() -> None:
    made = table(records_in(KERNELS / "survey.jsonl"))
    assert made in (KERNELS / "README.md").read_text()
    assert int(made.splitlines()[-1].split("|")[2]) >= 150
