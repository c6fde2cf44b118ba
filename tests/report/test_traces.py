"""Traces of whole runs: of our own engine, of a program with ranges of its own, of a release. Each
is what Perfetto reads: it keeps to a schema, flows begin and end in slices, ranges are nested.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from cuda_torch import needs_cuda_torch
from pictured import timeline
from program_verdicts import finding
from racegate.cli.app import app
from racegate.history.recorded.log import LogKind, RecordedRun, RecordedStep
from racegate.report.timeline.chrome import chrome_trace
from racegate.report.timeline.recorded import recorded_trace
from small_engine import Wait
from small_release import SmallReleases
from warmed import Warmth, run_command

SCHEMA = json.loads((Path(__file__).parent / "schemas" / "trace-event.json").read_text())
PROGRAM = """
import torch
from torch.profiler import record_function

side = torch.cuda.Stream()


def load(staging, number):
    staging.fill_(float(number))
    with torch.cuda.stream(side), torch.cuda.nvtx.range("upload"):
        batch = staging.to("cuda", non_blocking=True)
        landed = side.record_event()
    torch.cuda.current_stream().wait_event(landed)
    torch.cuda.nvtx.mark("waits")
    return batch


staging, batches = torch.empty(4, pin_memory=True), []
first, second = (torch.cuda.nvtx.range_start(f"epoch {number}") for number in range(2))
for number in range(2):
    with record_function(f"batch {number}"):
        batches.append(load(staging, number))
torch.cuda.nvtx.range_end(first)
torch.cuda.synchronize()
torch.cuda.nvtx.range_end(second)
torch.cuda.nvtx.range_start("never closed")
"""
Events = list[dict[str, Any]]


def events_of(text: str | bytes) -> Events:
    """Of a trace that is sound."""
    trace = json.loads(text)
    jsonschema.Draft7Validator(SCHEMA).validate(trace)
    events: Events = trace["traceEvents"]
    slices = {(one["tid"], one["ts"]) for one in events if one["ph"] == "X"}
    for one in events:
        if one["ph"] in "sf":
            assert (one["tid"], one["ts"] - one["ts"] % 1_000) in slices
    counts = Counter((one["ph"], one["id"]) for one in events if one["ph"] in "sf")
    assert set(counts.values()) <= {1}
    assert {i for ph, i in counts if ph == "s"} == {i for ph, i in counts if ph == "f"}
    depths: Counter[int] = Counter()
    for one in events:
        depths[one.get("tid", 0)] += {"B": 1, "E": -1}.get(one["ph"], 0)
        assert depths[one.get("tid", 0)] >= 0, "a range ends that has not begun"
    assert not any(depths.values()), "a range does not end"
    return events


def tracks(events: Events) -> dict[str, int]:
    return {one["args"]["name"]: one["tid"] for one in events if one["name"] == "thread_name"}


def named(events: Events) -> Events:
    return [{"name": "", **one} for one in events]


@needs_cuda_torch
def test_a_program_is_drawn_with_its_own_ranges(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(PROGRAM)
    words = ("torch", "run", "--trace-out", "x.json", "--json", "found.json", "x.py")
    done = run_command(*words, cwd=tmp_path, warmth=Warmth.PROGRAMS)
    assert done.returncode == 1, done.stderr
    events = named(events_of((tmp_path / "x.json").read_text()))
    lanes = tracks(events)
    assert set(lanes) >= {"the host", "the default stream", "stream 1"}
    (found,) = json.loads((tmp_path / "found.json").read_text())["findings"]
    begun = [one["name"] for one in events if one["ph"] == "B"]
    assert begun == ["batch 0", "upload", "batch 1", "upload"]
    assert [one["name"] for one in events if one["ph"] == "i"] == ["waits", "waits"]
    own = {number: [one["ts"] for one in events if one["name"] == f"epoch {number}"]
           for number in range(2)}  # fmt: skip
    assert own[0][0] < own[1][0] < own[0][1] < own[1][1]
    assert [one["ph"] for one in events if one["name"].startswith("epoch")] == ["b", "e"] * 2
    assert "never closed" not in {one["name"] for one in events}
    uploads = [one for one in events if one["name"] == "h2d" and one["ph"] == "X"]
    assert [one["tid"] for one in uploads] == [lanes["stream 1"]] * 2
    assert uploads[0]["args"]["place"] == "x.py:11"
    marked = [one["name"] for one in events if one.get("cat") == "conflict"]
    assert marked == ["h2d", "host write (fill_)"]
    assert uploads[0]["args"]["conflict"] == found["signature"]
    waits = [one for one in events if one.get("cat") == "edge" and one["ph"] == "s"]
    assert [one["name"] for one in waits].count("event.wait") == 2
    (missing,) = [one for one in events if one.get("cat") == "missing" and one["ph"] == "s"]
    assert (missing["tid"], missing["ts"]) == (lanes["stream 1"], uploads[0]["ts"] + 500)
    race = found["race"]
    assert race["allocated"][0] == ["x.py", 18, "<module>"]
    assert race["first"]["made"][0] == ["x.py", 5, "<module>"]
    assert race["second"]["made"] == []


OF_RANKS = """
import torch, os
torch.cuda.set_device(int(os.environ["RANK"]))
x = torch.zeros(4, device="cuda")
torch.cuda.synchronize()
with torch.cuda.stream(torch.cuda.Stream()):
    x.add_(1)
if os.environ["RANK"] == "1":
    x.mul_(2)
"""


@needs_cuda_torch
def test_ranks_are_drawn_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(OF_RANKS)
    words = ("torch", "run", "--ranks", "2", "--trace-out", "x.json", "x.py")
    done = run_command(*words, cwd=tmp_path, warmth=Warmth.PROGRAMS)
    assert done.returncode == 1, done.stderr
    events = named(events_of((tmp_path / "x.json").read_text()))
    lanes = tracks(events)
    drawn = [(one["name"], one["tid"]) for one in events if one.get("cat") == "conflict"]
    racing = {"add_": "stream 2 of rank 1", "mul_": "the default stream of GPU 1 of rank 1"}
    assert drawn == [(name, lanes[lane]) for name, lane in racing.items()]
    added = [one["tid"] for one in events if one["name"] == "add_" and one["ph"] == "X"]
    assert added == [lanes["stream 1 of rank 0"], lanes["stream 2 of rank 1"]]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_release_is_drawn_too(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("racegate.cli.foreign.releases.open_release", SmallReleases(Wait.BEHIND))
    script = tmp_path / "s.toml"
    text = 'schema = 1\nname = "small"\ntitle = "t"\n[[requests]]\nname = "A"\nprompt_len = 1\n'
    script.write_text(f"{text}max_tokens = 1\naccepts = [1]\n")
    words = [engine, "run", str(script), "--release", "1.0", "--log", str(tmp_path / "log")]
    done = CliRunner().invoke(app, [*words, "--trace-out", str(tmp_path / "x.json")])
    assert done.exit_code == 1, done.output
    events = events_of((tmp_path / "x.json").read_text())
    assert {one["cat"] for one in events if "cat" in one} >= {"conflict", "edge", "missing"}


def test_our_own_engine_keeps_to_the_schema() -> None:
    assert events_of(chrome_trace(timeline("accepted-copy-after-row-move")))


def step(kind: LogKind, name: str = "", thread: int = 0, source: int = -1) -> RecordedStep:
    return RecordedStep(kind, thread, thread, name, "", source)


def test_ranges_are_whole_though_a_program_leaves_them_open() -> None:
    steps = (
        step(LogKind.END),
        step(LogKind.BEGIN, "outer"),
        step(LogKind.BEGIN, "inner"),
        step(LogKind.END),
        step(LogKind.END, thread=1),
        step(LogKind.HAND_ON, "hand over"),
        step(LogKind.WAIT, "take over", thread=1, source=5),
    )
    events = events_of(recorded_trace(RecordedRun(("a", "b"), steps), [finding("a")], "t"))
    assert [one["ph"] for one in events if one["ph"] in "BE"] == ["B", "B", "E", "E"]
    assert [one["tid"] for one in events if one["ph"] in "sf"] == [0, 1]
    assert not [one for one in events if one.get("cat") == "missing"], "neither is in the log"


@pytest.mark.parametrize("broken", [{"ph": "X"}, {"ph": "f"}, {"ph": "?"}, {"ph": "M", "args": {}}])
def test_the_schema_refuses(broken: dict[str, Any]) -> None:
    whole = {"name": "n", "cat": "c", "pid": 1, "tid": 1, "ts": 0}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"traceEvents": [{**whole, **broken}]}, SCHEMA)
