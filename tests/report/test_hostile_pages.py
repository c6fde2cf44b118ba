"""Pages: what a file says is text in them, and nothing else."""

from __future__ import annotations

from pathlib import Path

import msgspec

from racegate.measure.evaluation.matrix import load_matrix
from racegate.report.measured.gpu import load_folder, render_gpu
from racegate.report.measured.matrix import render_html

REPORTS = Path(__file__).parents[2] / "reports"
NASTY = "<script>\u202e\x1b[31m|[x](y)`"


def test_html_has_no_element_of_a_file() -> None:
    matrix = load_matrix(REPORTS / "faults" / "matrix.json")
    row = matrix.rows[0]
    assert row.shown is not None
    shown = msgspec.structs.replace(row.shown, scenario=NASTY, signature=NASTY)
    cells = {look: msgspec.structs.replace(cell, first=shown) for look, cell in row.oracles.items()}
    rows = (msgspec.structs.replace(row, shown=shown, oracles=cells), *matrix.rows[1:])
    page = render_html(msgspec.structs.replace(matrix, rows=rows))
    assert "&lt;script&gt;\\u202e\\x1b[31m" in page
    assert not {"\u202e", "\x1b"} & set(page)
    assert page.count("<script>") == 0


def test_markdown_has_no_html_of_a_file() -> None:
    folder = load_folder(REPORTS / "gpu")
    for environment in folder.environments.values():
        assert isinstance(environment, dict)
        environment[NASTY] = NASTY
    page = render_gpu(folder)
    assert "&#60;script&#62;\\u202e\\x1b&#91;31m&#124;" in page
    assert "<script>" not in page
    assert not {"\u202e", "\x1b"} & set(page)
