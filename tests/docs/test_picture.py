"""The picture in README shows what the run below it prints."""

from __future__ import annotations

from xml.etree import ElementTree

from racegate.check.checker import Checker
from racegate.faults.catalogue import find_fault
from racegate.history.trace import OpRecord
from racegate.scenario.files import load
from repository import ROOT
from support import SCENARIOS

SVG = "{http://www.w3.org/2000/svg}"


def test_the_copy_is_on_the_lane_that_it_runs_on() -> None:
    drawn = ElementTree.parse(ROOT / "docs" / "race.svg").getroot()
    lanes = [
        (float(box.get("y", "")), float(box.get("height", "")))
        for box in drawn.iter(f"{SVG}rect")
        if box.get("class") == "lane"
    ]
    names = [text.text for text in drawn.iter(f"{SVG}text") if text.get("x") == "16"]
    copies = [
        float(box.get("y", ""))
        for box in drawn.iter(f"{SVG}rect")
        if box.get("class") in ("held", "copy") and float(box.get("y", "")) < lanes[-1][0]
    ]
    assert len(copies) == 2
    shown = {
        name
        for name, (top, height) in zip(names, lanes, strict=True)
        for y in copies
        if top < y < top + height
    }
    fault = find_fault("accepted-copy-after-row-move")
    checker = Checker(load(SCENARIOS / "finish_and_condense.toml"))
    trace = checker.run_judged(fault=fault).run.trace
    assert trace is not None
    copy = next(
        one
        for one in trace.events
        if isinstance(one, OpRecord) and one.name == "d2h:accepted_counts@3"
    )
    assert shown == {trace.lanes[copy.lane]}
