"""Parts of a fleet: where a target's folder is, what a cell of the matrix says, how a finding is
shown again.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from racegate.check.checker import Checker
from racegate.faults.catalogue import find_fault
from racegate.history.schedule import parse_schedule
from racegate.jobs.fleet.matrix import _cell, _column
from racegate.jobs.fleet.own import own_witness_of
from racegate.jobs.fleet.targets import AdapterTarget, PythonTarget, RevisionTarget, Target, _placed
from racegate.jobs.stores.records import Sighting
from racegate.jobs.verify import _replays
from support import scenario


@pytest.mark.parametrize(
    ("target", "placed"),
    [
        (AdapterTarget(name="a", adapter=("x",), folder="eng"), "{}/eng"),
        (RevisionTarget(name="a", revision="main", checkout="../src"), "{.parent}/src"),
        (PythonTarget(name="a", program=("p.py", "--seed", "{seed}")), "{}/p.py"),
        (PythonTarget(name="a", program=("-m", "p")), "-m"),
    ],
)
def test_a_folder_is_where_the_file_means_it(target: Target, placed: str, tmp_path: Path) -> None:
    found: Any = _placed(target, tmp_path)
    place = {AdapterTarget: "folder", RevisionTarget: "checkout"}.get(type(target))
    told = found.program[0] if place is None else getattr(found, place)
    assert told == placed.replace("{.parent}", str(tmp_path.parent)).replace("{}", str(tmp_path))
    assert found.name == target.name and type(found) is type(target)


def a_state(**known: Any) -> Any:
    nothing = {"verdicts": {}, "done": 0, "scenarios_with": {}, "set_aside": (), "target": "one"}
    return SimpleNamespace(**{**nothing, "seen": {}, "hits": {}, "selfcheck": None, **known})


def test_a_cell_says_when_it_was_seen_first_and_last_by_any_campaign() -> None:
    one: Any = SimpleNamespace(signature="s", is_minimal=True, witness=None, seed=3, index=9)
    states = [
        a_state(seen={"s": Sighting(first=5.0, last=9.0)}, hits={"s": 2}),
        a_state(seen={"s": Sighting(first=1.0, last=6.0)}, hits={"s": 1}),
        a_state(seen={"other": Sighting(first=0.0, last=99.0)}),
    ]
    cell = _cell("target", states, one)
    assert (cell.hits, cell.seen) == (3, Sighting(first=1.0, last=9.0))
    assert _cell("target", states[2:], one).seen is None


def test_verdicts_of_a_column_are_in_one_order_whatever_came_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("racegate.jobs.fleet.matrix.together", lambda checks: None)
    states = [a_state(verdicts={"PROVED": 2}), a_state(verdicts={"BENIGN": 1, "PROVED": 1})]
    for given in (states, states[::-1]):
        assert list(_column("c", given).verdicts.items()) == [("BENIGN", 1), ("PROVED", 3)]


def test_a_witness_of_a_revision_is_shown_by_its_title() -> None:
    """Each hold is an option of its own."""
    fault = find_fault("accepted-copy-after-row-move")
    name = fault.scenarios[0].replace("-", "_")
    script = scenario(name)
    holds = (*fault.holds[script.name], "d2h:valid_count@1 until forced")
    result = Checker(script).run(schedule=parse_schedule(holds), fault=fault)
    target: Any = RevisionTarget(name="a", revision="main")
    witness = own_witness_of(target, script, 7, result)
    words = shlex.split(witness.title)
    assert words[:3] == ["racegate", "run", f"{script.name}.toml"]
    options = dict(zip(range(len(holds)), zip(words[3::2], words[4::2], strict=True), strict=True))
    assert [flag for flag, _ in options.values()] == ["--hold"] * len(holds)
    assert tuple(hold for _, hold in options.values()) == witness.holds
    assert (witness.seed, witness.verdict) == (7, result.verdict)


def test_a_scenario_that_shows_nothing_shows_nothing_again() -> None:
    report: Any = SimpleNamespace(found=None)
    assert not _replays(report)
