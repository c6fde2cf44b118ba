"""Timelines: what they say of a race, in each of their forms."""

from __future__ import annotations

import json
from collections import Counter
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.check.checker import Checker
from racegate.cli.app import app
from racegate.faults.catalogue import find_fault
from racegate.history.schedule import parse_schedule
from racegate.history.witness import load_witness
from racegate.oracles.ordering import find_conflicts
from racegate.oracles.paths import ExplainError
from racegate.report.timeline.chrome import chrome_trace
from racegate.report.timeline.model import Role, Timeline, timeline_of
from racegate.report.timeline.plain import COLUMNS_MAX, LINES_MAX, plain_timeline
from racegate.report.timeline.svg import svg_timeline
from racegate.repro.explain import explain_conflict
from support import SCENARIOS

WITNESSES = SCENARIOS / "witnesses"
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


def traced(name: str) -> Any:
    """The recorded run of a witness."""
    witness = load_witness(WITNESSES / f"{name}.witness.json")
    fault = None if witness.fault is None else find_fault(witness.fault)
    checker = Checker(witness.scenario, replay="")
    return checker.execute(schedule=parse_schedule(list(witness.holds)), fault=fault).trace


@cache
def timeline(name: str) -> Timeline:
    trace = traced(name)
    conflict = find_conflicts(trace)[0]
    return timeline_of(trace, conflict.first.name, conflict.second.name)


@pytest.mark.parametrize("name", RACES)
def test_the_model_says_what_explain_says(name: str) -> None:
    trace = traced(name)
    for conflict in find_conflicts(trace):
        explained = explain_conflict(trace, conflict)
        drawn = timeline_of(trace, explained.first, explained.second)
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
    many = [msgspec.structs.replace(beside, at=drawn.first.at + 1)] * 50
    lines = plain_timeline(msgspec.structs.replace(drawn, bars=(*drawn.bars, *many)))
    assert len(lines) <= LINES_MAX
    assert sum("more accesses of the same rows" in line for line in lines) == 1


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
    boxes = {b.attrib["class"]: b for b in root.iter(f"{space}rect") if "rx" in b.attrib}
    assert {"first", "second"} <= set(boxes)
    for box in boxes.values():
        assert 0 <= float(box.attrib["x"]) <= width - float(box.attrib["width"])
        assert 0 <= float(box.attrib["y"]) <= height
    texts = "\n".join(text.text or "" for text in root.iter(f"{space}text"))
    assert timeline(name).first.name in texts and timeline(name).second.name in texts
    assert "missing: nothing orders" in texts


def test_hostile_names_are_escaped() -> None:
    drawn = timeline("accepted-double-remap")
    bad = "<script>alert(1)</script>&\"'"
    bars = tuple(msgspec.structs.replace(bar, name=bad) for bar in drawn.bars)
    hostile = msgspec.structs.replace(drawn, bars=bars, buffer=bad)
    picture = svg_timeline(hostile)
    assert "<script" not in picture
    assert bad in (ElementTree.fromstring(picture)[0].text or "")
    assert json.loads(chrome_trace(hostile))


def test_what_does_not_race_is_not_drawn() -> None:
    with pytest.raises(ExplainError, match="do not race in this run"):
        timeline_of(traced(RACES[0]), "host:condense@4", "host:condense@4")


def test_explain_draws_what_it_is_asked_for(tmp_path: Path) -> None:
    svg, trace = tmp_path / "race.svg", tmp_path / "race.json"
    call = ["explain", str(ROW_MOVE), "--svg", str(svg), "--trace-out", str(trace)]
    result = CliRunner().invoke(app, call)
    assert result.exit_code == 0, result.output
    assert "*** nothing orders it and d2h:accepted_counts@3" in result.output
    assert "wait: accepted-landed" in result.output
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    assert json.loads(trace.read_text())["traceEvents"]


class Reader(HTMLParser):
    """Open tags are closed, and nothing is loaded."""

    VOID = frozenset({"meta", "br"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "link", "img", "iframe"}
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
    result = CliRunner().invoke(app, ["explain", str(hostile), "--html", str(page)])
    assert result.exit_code == 0, result.output
    reader = Reader()
    reader.feed(page.read_text())
    assert reader.open == []
    text = " ".join(" ".join(reader.text).split())
    for said in (
        "Race on accepted_counts_cpu",
        "inputs.accepted of request C at [0] is 2, the reference has 1",
        "d2h:accepted_counts@3 and host:condense@4",
        "a wait of host for that event, before host:condense@4",
        "edge accepted-landed, waited for in step 4",
        "<b onload=x>.witness.json",
        "One hold decides",
        "d2h:accepted_counts@C.0 until host:condense@C.1",
        "missing: nothing orders",
    ):
        assert said in text, said


def test_a_page_is_about_a_witness(tmp_path: Path) -> None:
    scenario = SCENARIOS / "finish_and_condense.toml"
    pair = ["--pair", "d2h:accepted_counts@3", "host:condense@4"]
    call = ["explain", str(scenario), *pair, "--fault", "accepted-copy-after-row-move"]
    svg, html = tmp_path / "race.svg", tmp_path / "race.html"
    assert CliRunner().invoke(app, [*call, "--svg", str(svg)]).exit_code == 0
    assert ElementTree.parse(svg).getroot().tag.endswith("svg")
    result = CliRunner().invoke(app, [*call, "--html", str(html)])
    assert result.exit_code == 2
    assert "a page is about a witness" in result.output


def test_a_defect_of_logic_has_no_picture(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["explain", str(LOGIC), "--svg", str(tmp_path / "race.svg")])
    assert result.exit_code == 2
    assert "nothing races, so" in result.output
    assert not (tmp_path / "race.svg").exists()
