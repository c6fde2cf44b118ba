"""Timelines: what they say of a finding, in each of their forms."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from typer.testing import CliRunner

from pictured import WITNESSES, found, judged, material, renamed, timeline
from racegate.check.repro.explain import explain_conflict
from racegate.cli.app import app
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.paths import ExplainError
from racegate.report.finding.page import finding_page, findings_page
from racegate.report.finding.pictured import PicturedFinding
from racegate.report.text import print_cause, print_picture
from racegate.report.timeline.chrome import chrome_trace
from racegate.report.timeline.model import Role, racing_pair, timeline_of
from racegate.report.timeline.overview import svg_overview
from racegate.report.timeline.plain import COLUMNS_MAX, LINES_MAX, plain_timeline
from racegate.report.timeline.svg import svg_timeline
from racegate.scenario.untrusted.console import PrintableConsole
from support import SCENARIOS

ROW_MOVE = WITNESSES / "accepted-copy-after-row-move.witness.json"
LOGIC = WITNESSES / "accepted-count-with-hole.witness.json"
RACES = [
    "accepted-copy-after-row-move",
    "accepted-double-remap",
    "accepted-read-before-copy",
    "checkpoint-before-forward",
    "plan-before-producer",
    "row-update-before-postprocess",
    "zero-after-load",
]


@pytest.mark.parametrize("name", RACES)
def test_the_model_says_what_explain_says(name: str) -> None:
    run = judged(name).run
    for conflict in find_conflicts(run.trace):
        explained = explain_conflict(run.trace, conflict)
        drawn = timeline_of(run, racing_pair(run.trace, explained.first, explained.second))
        assert {drawn.first.name, drawn.second.name} == {explained.first, explained.second}
        late = drawn.late
        text = None if late is None else f"edge {late.edge}, waited for in step {late.step}"
        assert text == explained.late_wait


@pytest.mark.parametrize("name", RACES)
def test_nobody_knows_of_the_first_before_the_second(name: str) -> None:
    """Or it would be ordered: the host may know of a stream's operation only after it."""
    drawn = timeline(name)
    if drawn.second.lane == 0:
        assert drawn.first.until is None or drawn.first.until > drawn.second.at


@pytest.mark.parametrize("name", RACES)
def test_plain_text_fits_and_names_the_pair(name: str) -> None:
    lines = plain_timeline(timeline(name))
    assert len(lines) <= LINES_MAX
    assert max(map(len, lines)) <= COLUMNS_MAX
    text = "\n".join(lines)
    assert timeline(name).first.name in text
    assert f"*** nothing orders it and {timeline(name).first.name}" in text


def test_many_accesses_are_counted_and_not_shown() -> None:
    drawn = timeline("accepted-double-remap")
    beside = next(bar for bar in drawn.bars if bar.role is Role.BESIDE)
    other = msgspec.structs.replace(beside, touches="reads what is beside it")
    many = [msgspec.structs.replace(each, at=drawn.first.at + 1) for each in (beside, other) * 25]
    lines = plain_timeline(msgspec.structs.replace(drawn, bars=(*drawn.bars, *many)))
    assert len(lines) <= LINES_MAX
    assert sum("more accesses of the same rows" in line for line in lines) == 1


def test_a_held_operation_lands_at_its_point_and_others_at_once() -> None:
    drawn = timeline("accepted-copy-after-row-move")
    assert drawn.first.held == "host:condense@4"
    assert drawn.first.at < drawn.second.at < drawn.first.landed
    assert drawn.first.until is not None and drawn.first.landed <= drawn.first.until
    before = [bar for bar in drawn.bars if bar.at < drawn.first.at]
    assert all(bar.landed == bar.at for bar in before)
    behind = [b for b in drawn.bars if b.lane == drawn.first.lane and b.at > drawn.first.at]
    assert all(bar.landed >= drawn.first.landed for bar in behind)


def test_requests_are_named_where_they_sit_and_where_they_move() -> None:
    drawn = timeline("accepted-copy-after-row-move")
    text = "\n".join(plain_timeline(drawn))
    assert "rows: 0 A, 1 C" in text
    assert "C moves from row 1 to row 0; A left row 0" in text
    assert "row 0 is C's and holds the value of A" in text
    picture = svg_timeline(drawn)
    assert "C: row 1 → 0; A left" in picture
    assert picture.count('class="chip row') == 1, "the row that both touch"


def test_a_defect_of_logic_is_drawn_without_a_missing_edge() -> None:
    drawn = timeline("slot-vs-row-index")
    assert "under every timing" in "\n".join(plain_timeline(drawn))
    picture = svg_timeline(drawn)
    assert "no edge is missing" in picture and "nothing orders" not in picture
    events = json.loads(chrome_trace(drawn))["traceEvents"]
    assert not [e for e in events if e.get("cat") == "missing"]
    assert [e["ph"] for e in events if e.get("cat") == "value"] == ["s", "f"]


def test_a_trace_says_what_is_held_and_who_moves() -> None:
    events = json.loads(chrome_trace(timeline("accepted-copy-after-row-move")))["traceEvents"]
    held = [e["name"] for e in events if e.get("cat") == "held" and e["ph"] == "b"]
    assert "d2h:accepted_counts@3 held until host:condense@4" in held
    assert "C moves from row 1 to row 0" in [e["name"] for e in events if e["ph"] == "i"]


@pytest.mark.parametrize("name", RACES)
def test_a_trace_has_flows_between_slices_and_whole_asyncs(name: str) -> None:
    events = json.loads(chrome_trace(timeline(name)))["traceEvents"]
    slices = {(e["tid"], e["ts"]) for e in events if e["ph"] == "X"}
    for event in events:
        if event["ph"] in "sf":
            assert (event["tid"], event["ts"] - event["ts"] % 1_000) in slices
    counts = Counter((e["ph"], e["id"]) for e in events if e["ph"] in "sfbe")
    assert set(counts.values()) == {1}
    assert {i for ph, i in counts if ph == "s"} == {i for ph, i in counts if ph == "f"}
    assert {i for ph, i in counts if ph == "b"} == {i for ph, i in counts if ph == "e"}
    missing = [e for e in events if e.get("cat") == "missing"]
    assert [e["ph"] for e in missing] == ["s", "f"]
    assert [e["tid"] for e in missing] == [timeline(name).first.lane, timeline(name).second.lane]


@pytest.mark.parametrize("name", RACES)
def test_a_picture_is_xml_and_shows_the_pair_inside_it(name: str) -> None:
    root = ElementTree.fromstring(svg_timeline(timeline(name)))
    space = "{http://www.w3.org/2000/svg}"
    width, height = map(float, root.attrib["viewBox"].split()[2:])
    groups = {g.attrib.get("class", "").partition(" ")[0] for g in root.iter(f"{space}g")}
    assert {"first", "second"} <= groups
    for box in root.iter(f"{space}rect"):
        x, y = float(box.attrib.get("x", 0)), float(box.attrib.get("y", 0))
        assert 0 <= x <= width - float(box.attrib["width"])
        assert 0 <= y <= height - float(box.attrib["height"])
    texts = "\n".join(text.text or "" for text in root.iter(f"{space}text"))
    assert timeline(name).first.name in texts and timeline(name).second.name in texts
    assert "missing: nothing orders" in texts
    assert sum("missing" in p.attrib["class"] for p in root.iter(f"{space}path")) == 1


def test_hostile_names_are_escaped() -> None:
    bad = "<script>alert(1)</script>&\"'\x1b\u202e"
    hostile = renamed(material("accepted-double-remap"), bad)
    assert hostile.timeline is not None
    picture, page = svg_timeline(hostile.timeline), finding_page(hostile)
    shown = bad.replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    assert "<script" not in picture
    assert shown in (ElementTree.fromstring(picture)[0].text or "")
    assert page.count("<script") == 0, "one schedule has no slider"
    assert not {"\x1b", "\u202e"} & set(page + picture)
    assert json.loads(chrome_trace(hostile.timeline))
    console = PrintableConsole(width=200)
    with console.capture() as told:
        print_cause(
            console, msgspec.structs.replace(found("accepted-double-remap").account, title=bad)
        )
        print_picture(console, plain_timeline(hostile.timeline))
    assert "\\x1b" in told.get() and not {"\x1b", "\u202e"} & set(told.get())


def test_a_long_run_is_a_few_shapes() -> None:
    """Thousands of elements are what makes a page slow to open."""
    drawn = timeline("accepted-copy-after-row-move")
    other = next(bar for bar in drawn.bars if bar.role is Role.OTHER and bar.lane)
    end = drawn.bars[-1].at
    more = [
        msgspec.structs.replace(other, at=end + n, landed=end + n, until=end + n)
        for n in range(2_000)
    ]
    long = msgspec.structs.replace(drawn, bars=(*drawn.bars, *more))
    picture = svg_overview(long)
    root = ElementTree.fromstring(picture)
    paths = [p for p in root.iter() if p.tag.endswith("path")]
    assert len(paths) == len(drawn.lanes) + 2, "one for each lane, and one for each of the pair"
    assert len(list(root.iter())) < 100
    assert plain_timeline(long) == plain_timeline(drawn)


def test_what_does_not_race_is_not_drawn() -> None:
    with pytest.raises(ExplainError, match="do not race in this run"):
        racing_pair(judged(RACES[0]).run.trace, "host:condense@4", "host:condense@4")


class Reader(HTMLParser):
    """Open tags are closed, and nothing is loaded."""

    VOID = frozenset({"meta", "br", "input"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"link", "img", "iframe"}
        assert not {"src", "href"} & {name for name, _ in attrs}
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_the_page_of_a_race_says_it_all_and_loads_nothing(tmp_path: Path) -> None:
    page = tmp_path / "race.html"
    hostile = tmp_path / "<b onload=x>.witness.json"
    hostile.write_bytes(ROW_MOVE.read_bytes())
    svg, trace = tmp_path / "race.svg", tmp_path / "race.json"
    wanted = ["--html", str(page), "--svg", str(svg), "--trace-out", str(trace)]
    result = CliRunner().invoke(app, ["explain", str(hostile), *wanted])
    assert result.exit_code == 0, result.output
    assert "*** nothing orders it and d2h:accepted_counts@3" in result.output
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert json.loads(trace.read_text())["traceEvents"]
    reader = Reader()
    reader.feed(page.read_text())
    assert reader.open == []
    text = " ".join(" ".join(reader.text).split())
    for said in (
        "Race on accepted_counts_cpu",
        "inputs.accepted of request C at [0] is 2, the reference has 1",
        "and nothing orders it with",
        "a wait of host for it before host:condense@4",
        "accepted-landed, which comes too late: the wait stands behind host:condense@4",
        "<b onload=x>.witness.json",
        "One hold decides",
        "d2h:accepted_counts@C.0 until host:condense@C.1",
        "missing: nothing orders",
        "first divergence",
        "kernels are deterministic functions",
    ):
        assert said in text, said


SCENARIO = SCENARIOS / "finish_and_condense.toml"
SEEDED = ["--fault", "accepted-copy-after-row-move"]
ONE = ["-k", "finish-and-condense", "--workers", "1", "--explore", "eager"]
GATE = ["gate", "-v", "--scenarios", str(SCENARIOS), *ONE, *SEEDED]


def drawn_by(call: list[str], folder: Path, *options: str) -> list[str]:
    """What a command that finds the race writes into the files of its options."""
    files = [folder / option.strip("-") for option in options]
    wanted = [str(text) for pair in zip(options, files, strict=True) for text in pair]
    result = CliRunner().invoke(app, [*call, *wanted])
    assert result.exit_code == 1, result.output
    assert "*** nothing orders it and d2h:accepted_counts@" in result.output
    assert "wait: accepted-landed" in result.output
    return [file.read_text() for file in files]


def test_a_page_comes_from_a_run(tmp_path: Path) -> None:
    (page,) = drawn_by(["run", str(SCENARIO), *SEEDED], tmp_path, "--html")
    assert "Race on accepted_counts_cpu" in page
    assert "Nothing went wrong in this run. With d2h:accepted_counts@3 until" in page


@pytest.mark.parametrize("call", [GATE, ["replay", str(ROW_MOVE)]], ids=lambda call: call[0])
def test_pictures_come_from_gate_and_replay(call: list[str], tmp_path: Path) -> None:
    svg, trace = drawn_by(call, tmp_path, "--svg", "--trace-out")
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert json.loads(trace)["traceEvents"]


def test_where_nothing_is_found_nothing_is_drawn(tmp_path: Path) -> None:
    svg = tmp_path / "race.svg"
    call = ["run", str(SCENARIOS / "steady_mixed_accepts.toml"), "--svg", str(svg)]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    assert f"nothing was found, so {svg} is not written" in result.output
    assert not svg.exists()


def test_several_witnesses_are_drawn_on_one_page(tmp_path: Path) -> None:
    html, svg = tmp_path / "races.html", tmp_path / "race.svg"
    call = ["replay", str(ROW_MOVE), str(LOGIC)]
    assert CliRunner().invoke(app, [*call, "--html", str(html)]).exit_code == 1
    page = html.read_text()
    assert page.count('class="columns"') == page.count('class="column"') == 2
    assert page.count("<article") == 2
    assert "the edge that is missing" in page
    assert f"racegate replay {ROW_MOVE}" in page
    result = CliRunner().invoke(app, [*call, "--svg", str(svg)])
    assert result.exit_code == 2
    assert "--html alone has several" in result.output


def test_several_findings_are_text_too() -> None:
    bad = "<script>\u202e\x1b[31m"
    nothing = PicturedFinding(name=bad, outcome=bad, title=bad, impact=bad)
    page = findings_page(bad, [renamed(material("accepted-double-remap"), bad), nothing])
    assert "<script" not in page
    assert not {"\u202e", "\x1b"} & set(page)


def test_a_page_is_about_a_finding(tmp_path: Path) -> None:
    pair = ["--pair", "d2h:accepted_counts@3", "host:condense@4"]
    call = ["explain", str(SCENARIO), *pair, *SEEDED]
    svg, html = tmp_path / "race.svg", tmp_path / "race.html"
    assert CliRunner().invoke(app, [*call, "--svg", str(svg)]).exit_code == 0
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    result = CliRunner().invoke(app, [*call, "--html", str(html)])
    assert result.exit_code == 2
    assert "a page is about a finding" in result.output
