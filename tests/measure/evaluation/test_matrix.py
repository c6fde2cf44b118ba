"""The kill matrix: no cell is worse than the committed one; its report says what it measured."""

from __future__ import annotations

import json
import re
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.check.subject import LaunchMode
from racegate.cli.faults import app
from racegate.faults.catalogue import FAULTS
from racegate.faults.fault import Fault, FaultKind
from racegate.measure.evaluation import matrix as matrix_module
from racegate.measure.evaluation.cells import (
    Look,
    MatrixRow,
    Strategy,
)
from racegate.measure.evaluation.kills import measure_row
from racegate.measure.evaluation.matrix import (
    Matrix,
    MatrixError,
    is_good,
    load_matrix,
    totals_of,
    worse_cells,
    worse_in_row,
)
from racegate.report.measured.matrix import LOOKS, STRATEGIES, render_html, render_markdown
from support import IS_NIGHTLY, NAMES, checker, of_one_rank

ROOT = Path(__file__).parents[3]
REPORT = ROOT / "reports" / "faults"
REBUILD = "run `make matrix` and commit reports/faults"
ORDERING = [fault for fault in FAULTS if fault.kind is FaultKind.ORDERING]


@cache
def committed() -> Matrix:
    return load_matrix(REPORT / "matrix.json")


def committed_row(name: str) -> MatrixRow:
    found = [row for row in committed().rows if row.fault == name]
    assert found, f"{name} is not in the committed matrix: {REBUILD}"
    return found[0]


def named(fault: Fault) -> str:
    return fault.name


# The controls are those that `test_controls_are_silent_everywhere` runs on all scripts.
SEEDED = [fault for fault in FAULTS if fault.kind is not FaultKind.CONTROL]


@pytest.mark.parametrize("fault", FAULTS if IS_NIGHTLY else SEEDED[::4], ids=named)
def test_no_cell_is_worse_than_the_committed_one(fault: Fault) -> None:
    # A strategy that finds nothing uses up its budget, and cannot get worse: it is left out. A
    # control would cost most of all; the oracles over all scripts are enough to hear it.
    old = committed_row(fault.name)
    tried = [s for s, cell in old.strategies.items() if cell.kill is not None or cell.flagged]
    checkers = {name: checker(name) for name in fault.scenarios or NAMES}
    new = measure_row(
        fault,
        checkers,
        strategies=tried,
        budget=committed().budget,
        seed=committed().seed,
    )
    assert worse_in_row(old, new) == [], f"if it is meant to be so, {REBUILD}"


def test_the_committed_matrix_has_the_catalogues_faults() -> None:
    assert [row.fault for row in committed().rows] == [fault.name for fault in FAULTS], REBUILD
    assert committed().totals == totals_of(committed().rows)


def test_every_fault_shows_first_where_the_catalogue_says_and_controls_are_silent() -> None:
    assert is_good(committed().totals)
    for row in committed().rows:
        if row.kind is not FaultKind.CONTROL:
            assert row.shown is not None
            assert row.shown.field == row.expect


def test_one_way_to_look_is_not_enough() -> None:
    totals = committed().totals
    for strategy in (Strategy.EAGER, Strategy.LATE, Strategy.SYNC_EVERYWHERE):
        assert totals.strategies[strategy].missed
    for look in (Look.ORDERING, Look.FINAL_TOKENS, Look.FINAL_TOKENS_NATURAL):
        assert totals.oracles[look].missed
    natural = totals.oracles[Look.FINAL_TOKENS_NATURAL].missed
    assert set(natural) > set(totals.oracles[Look.FINAL_TOKENS].missed)


# Hosts of ranks take turns step by step: none can wait behind a collective that needs another one.
ONE_RANK = [fault for fault in ORDERING if fault.scenarios[0] in of_one_rank()]


@pytest.mark.parametrize("fault", ONE_RANK, ids=named)
def test_a_sync_everywhere_hides_the_race_from_the_ordering_oracle_too(fault: Fault) -> None:
    name = fault.scenarios[0]
    blocking = checker(name).execute(fault=fault, launches=LaunchMode.BLOCKING)
    assert checker(name).judge(blocking, fault=fault).stats.conflicts == 0
    assert checker(name).run(fault=fault).stats.conflicts > 0


@pytest.mark.parametrize("name", NAMES[:4])
def test_a_sync_everywhere_changes_no_value(name: str) -> None:
    run = checker(name).execute(launches=LaunchMode.BLOCKING)
    assert checker(name).judge(run).findings == ()


class TestWorse:
    """Which changes of a cell count."""

    @pytest.fixture
    def row(self) -> MatrixRow:
        return next(row for row in committed().rows if row.kind is FaultKind.ORDERING)

    def with_strategy(self, row: MatrixRow, strategy: Strategy, **changed: Any) -> MatrixRow:
        cell = msgspec.structs.replace(row.strategies[strategy], **changed)
        return msgspec.structs.replace(row, strategies=row.strategies | {strategy: cell})

    def with_look(self, row: MatrixRow, look: Look, **changed: Any) -> MatrixRow:
        cell = msgspec.structs.replace(row.oracles[look], **changed)
        return msgspec.structs.replace(row, oracles=row.oracles | {look: cell})

    def columns(self, old: MatrixRow, new: MatrixRow) -> list[str]:
        return [worse.column for worse in worse_in_row(old, new)]

    def test_the_same_is_not_worse_whatever_it_took(self, row: MatrixRow) -> None:
        assert self.columns(row, row) == []
        slow = self.with_strategy(row, Strategy.POS, seconds=1e6)
        assert self.columns(row, slow) == []

    def test_a_lost_kill(self, row: MatrixRow) -> None:
        assert self.columns(row, self.with_strategy(row, Strategy.POS, kill=None)) == ["pos"]

    def test_a_gained_kill_is_not_worse(self, row: MatrixRow) -> None:
        assert self.columns(self.with_strategy(row, Strategy.POS, kill=None), row) == []

    def test_a_later_kill(self, row: MatrixRow) -> None:
        kill = row.strategies[Strategy.DPOR].kill
        assert kill is not None
        later = msgspec.structs.replace(kill, schedules=kill.schedules + 1)
        assert self.columns(row, self.with_strategy(row, Strategy.DPOR, kill=later)) == ["dpor"]

    def test_an_order_that_is_not_named_any_more(self, row: MatrixRow) -> None:
        assert self.columns(row, self.with_strategy(row, Strategy.EAGER, flagged=None)) == ["eager"]

    def test_an_oracle_that_sees_it_in_fewer_runs(self, row: MatrixRow) -> None:
        seen = row.oracles[Look.STEPWISE].seen - 1
        assert self.columns(row, self.with_look(row, Look.STEPWISE, seen=seen)) == ["stepwise"]

    def test_a_first_field_that_is_not_the_expected_one_any_more(self, row: MatrixRow) -> None:
        assert row.shown is not None
        other = msgspec.structs.replace(row.shown, field="sampled.kv", is_expected=False)
        assert self.columns(row, msgspec.structs.replace(row, shown=other)) == ["shown"]

    def test_something_that_speaks_about_a_control(self, row: MatrixRow) -> None:
        control = msgspec.structs.replace(row, kind=FaultKind.CONTROL)
        assert self.columns(control, control) == ["row"]

    def test_a_fault_that_is_gone(self, row: MatrixRow) -> None:
        old = committed()
        rest = tuple(other for other in old.rows if other is not row)
        worse = worse_cells(old, msgspec.structs.replace(old, rows=rest))
        assert [(cell.fault, cell.column) for cell in worse] == [(row.fault, "row")]


class TestFile:
    """Strict to read."""

    def read(self, tmp_path: Path, content: Any) -> Matrix:
        path = tmp_path / "matrix.json"
        path.write_bytes(msgspec.json.encode(content))
        return load_matrix(path)

    def test_it_is_read_as_it_was_written(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, committed()) == committed()

    def test_what_is_not_understood_is_refused(self, tmp_path: Path) -> None:
        content = msgspec.to_builtins(committed())
        with pytest.raises(MatrixError, match="make it again"):
            self.read(tmp_path, content | {"schema": "racegate.matrix/0"})
        with pytest.raises(MatrixError, match="unknown field"):
            self.read(tmp_path, content | {"more": 1})
        with pytest.raises(MatrixError, match="rows"):
            self.read(tmp_path, content | {"rows": 1})
        with pytest.raises(MatrixError, match="cannot be read"):
            load_matrix(tmp_path / "none.json")


class Page(HTMLParser):
    """Elements, texts and references of a page; tags must nest."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(" ".join(data.split()))


def page(matrix: Matrix) -> Page:
    parsed = Page()
    parsed.feed(render_html(matrix))
    parsed.close()
    assert parsed.open == []
    return parsed


class TestReport:
    """Rendered from the figures and nothing else."""

    def test_what_is_committed_is_rendered_from_the_committed_figures(self) -> None:
        markdown = (REPORT / "README.md").read_text(encoding="utf-8")
        assert markdown == render_markdown(committed()), REBUILD

    def test_the_page_has_every_fault_and_column(self) -> None:
        texts = set(page(committed()).texts)
        assert {row.fault for row in committed().rows} <= texts
        assert {heading.name for heading in (*LOOKS.values(), *STRATEGIES.values())} <= texts

    def test_every_cell_has_a_symbol_and_a_tip(self) -> None:
        parsed = page(committed())
        cells = [attrs for tag, attrs in parsed.seen if tag == "td" and "class" in attrs]
        assert len(cells) == len(committed().rows) * (len(Look) + len(Strategy))
        assert all(attrs["title"] for attrs in cells)

    def test_the_page_needs_nothing_else(self) -> None:
        text = render_html(committed())
        assert not re.search(r"https?://|url\(|@import|<script|<link|<img|src=", text)
        references = [attrs["href"] for _, attrs in page(committed()).seen if "href" in attrs]
        anchors = {attrs["id"] for _, attrs in page(committed()).seen if "id" in attrs}
        assert {reference.removeprefix("#") for reference in references if reference} == anchors

    def test_the_page_follows_the_readers_colour_scheme(self) -> None:
        assert "prefers-color-scheme: dark" in render_html(committed())

    def test_text_is_escaped(self) -> None:
        row = msgspec.structs.replace(committed().rows[0], summary='<b title="x">&')
        parsed = page(msgspec.structs.replace(committed(), rows=(row,)))
        assert all(tag != "b" for tag, _ in parsed.seen)

    def test_the_sums_are_in_the_text(self) -> None:
        text = " ".join(render_markdown(committed()).split())
        missed = committed().totals.strategies[Strategy.EAGER].missed
        assert f"Misses {len(missed)}: {', '.join(missed)}" in text


def _cost(fault: Fault) -> float:
    """Seconds that its strategies took when the matrix was made."""
    return sum(cell.seconds for cell in committed_row(fault.name).strategies.values())


class TestCommand:
    """`racegate faults matrix`, on two faults, those of their kinds that cost least."""

    @pytest.fixture(autouse=True)
    def two_faults(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(ROOT)
        kinds = {fault.kind: fault for fault in sorted(SEEDED, key=_cost, reverse=True)}
        monkeypatch.setattr(matrix_module, "FAULTS", tuple(kinds.values()))

    def test_it_writes_figures_and_pages(self, tmp_path: Path) -> None:
        html, markdown = tmp_path / "m.html", tmp_path / "m.md"
        result = CliRunner().invoke(
            app,
            ["matrix", "--json", "-", "--html", str(html), "--markdown", str(markdown)],
        )
        assert result.exit_code == 0, result.output
        written = msgspec.convert(json.loads(result.stdout), Matrix)
        assert written.schema == "racegate.matrix/1"
        assert render_html(written) == html.read_text(encoding="utf-8")
        assert render_markdown(written) == markdown.read_text(encoding="utf-8")

    def test_it_says_what_got_worse(self) -> None:
        before = str(REPORT / "matrix.json")
        result = CliRunner().invoke(app, ["matrix", "--against", before])
        assert result.exit_code == 1
        assert "the fault is gone" in result.stdout

    def test_a_folder_without_the_scripts_is_bad_input(self, tmp_path: Path) -> None:
        (tmp_path / "s.toml").write_text((ROOT / "scenarios/mtp_drafter.toml").read_text())
        result = CliRunner().invoke(app, ["matrix", "--scenarios", str(tmp_path)])
        assert isinstance(result.exception, MatrixError)
