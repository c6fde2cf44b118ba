"""How it is recorded which test executes which lines: by file, kept, in parallel."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from racegate.jobs.pools.pool import PoolError
from racegate.measure.evaluation.source import by_tests
from racegate.measure.evaluation.source.kept import KeptReach, digest_of
from racegate.measure.evaluation.source.reach import LineReach, merged
from racegate.measure.evaluation.source.recording import reach_of
from racegate.measure.evaluation.source.sources import (
    ROOT,
    SOURCES,
    Source,
    files_of,
    find_source,
    mutants_of,
    parts_of,
    recording_of,
)
from racegate.scenario.errors import BrokenHarnessError


class Recorded:
    """A recording of files that are lists of lines. asked: of which parts, so far"""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []

    def prepare(self) -> None:
        pass

    def record(self, part: str) -> LineReach:
        self.asked.append(part)
        numbers = tuple(map(int, (self.root / part).read_text().split()))
        if not numbers:
            raise BrokenHarnessError(f"{part} fails")
        return LineReach(seconds={part: 1.0}, lines={"room/a.py": {part: numbers}})


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """Two files of tests and a room of one file, in a repository of their own."""
    found = Recorded(tmp_path)
    for module in ("kept", "sources"):
        monkeypatch.setattr(f"racegate.measure.evaluation.source.{module}.ROOT", tmp_path)
    monkeypatch.setattr(
        "racegate.measure.evaluation.source.recording.recording_of", lambda source, parts: found
    )
    for file, text in (("tests/test_a.py", "1 2"), ("tests/test_b.py", "2"), ("room/a.py", "x")):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    return found


def reach(recorded: Recorded) -> LineReach:
    """As a job has it that keeps its results in a file."""
    source = Source(name="device", folders=("room",), tests=("tests",))
    kept = recorded.root / "kept.jsonl"
    return reach_of(source, kept, workers=1, on_done=lambda done, total, part: None)


def test_only_what_has_changed_is_recorded_again(recorded: Recorded) -> None:
    first = reach(recorded)
    assert first.lines == {"room/a.py": {"tests/test_a.py": (1, 2), "tests/test_b.py": (2,)}}
    assert set(first.seconds) == set(recorded.asked) and len(recorded.asked) == 2
    assert reach(recorded) == first and len(recorded.asked) == 2
    (recorded.root / "tests/test_b.py").write_text("3")
    assert reach(recorded).lines["room/a.py"]["tests/test_b.py"] == (3,)
    assert recorded.asked[2:] == ["tests/test_b.py"]
    (recorded.root / "room/a.py").write_text("y")
    reach(recorded)
    assert len(recorded.asked) == 5, "lines may have moved in all that execute them"


def test_a_test_that_fails_keeps_nothing_of_the_others(recorded: Recorded) -> None:
    (recorded.root / "tests/test_a.py").write_text("")
    with pytest.raises(PoolError, match=r"test_a\.py fails"):
        reach(recorded)
    (recorded.root / "tests/test_a.py").write_text("4")
    reach(recorded)
    assert recorded.asked.count("tests/test_b.py") == 1


def test_a_line_that_a_kill_has_cut_is_recorded_again(tmp_path: Path) -> None:
    path = tmp_path / "kept.reach.jsonl"
    found = LineReach(seconds={"a": 1.0}, lines={"f.py": {"a": (1,)}})
    KeptReach(path).add("one", found)
    with path.open("ab") as file:
        file.write(b'["two", {"seconds"')
    assert KeptReach(path).found == {"one": found}


def test_a_test_that_fails_is_named_and_judges_nothing(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(
        "def test_bad():\n    assert False\n\ndef test_good():\n    pass\n"
    )
    part = str(tmp_path / "test_two.py")
    found = by_tests.TestsRecording(by_tests.TestsLook(tmp_path, [part]), tmp_path, []).record(part)
    assert set(found.seconds) == {"test_two.py::test_bad", "test_two.py::test_good"}
    assert found.failing == ("test_two.py::test_bad",)
    other = LineReach(seconds={"a": 1.0}, lines={"room/a.py": {"a": (1,)}}, failing=("a",))
    both = merged([found, other])
    assert both.failing == ("a", "test_two.py::test_bad")
    [one, *_] = [each for path in files_of(find_source("device")) for each in mutants_of(path)]
    mutant = msgspec.structs.replace(one, file="room/a.py")
    lines = {"room/a.py": dict.fromkeys(("a", "b"), mutant.edit.lines)}
    reach = LineReach(seconds={"a": 1.0, "b": 2.0}, lines=lines, failing=("a",))
    assert reach.judges(mutant) == ["b"]


def test_a_file_of_tests_is_recorded_as_it_runs() -> None:
    part = "tests/device/test_memo.py"
    recording = recording_of(find_source("device"), [part])
    found = recording.record(part)
    assert all(name.startswith(f"{part}::") for name in found.seconds)
    assert set(found.lines["harness/racegate/device/virtual/memo.py"]) == set(found.seconds)


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_every_source_has_parts_that_are_there(name: str) -> None:
    source = find_source(name)
    parts = parts_of(source)
    assert len({digest_of(source, part) for part in parts}) == len(parts)
    assert all((ROOT / part).exists() for part in parts)
