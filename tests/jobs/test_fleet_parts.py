"""Parts of a fleet: where a target's folder is, what a cell of the matrix says, how a finding is
shown again.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from racegate.check.checker import Checker
from racegate.faults.catalogue import find_fault
from racegate.history.finding import Finding, Verdict
from racegate.history.outcome import RunResult
from racegate.history.schedule import parse_schedule
from racegate.jobs.fleet.matrix import _cell, _column
from racegate.jobs.fleet.own import PLANTED, FleetAnswers, judge_by_runs, own_witness_of
from racegate.jobs.fleet.process import EndedCommands
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


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., FleetAnswers]:
    """What a fleet makes of a target's codes. sees: whether it shows what is planted"""

    def answers(*codes: int, sees: bool = True) -> FleetAnswers:
        def ended(commands: Sequence[Sequence[str]], **how: Any) -> EndedCommands:
            for canary, command in zip(PLANTED, commands, strict=False):
                shown = [Finding(kind=kind, signature="s", message="") for kind in canary.shows]
                run = RunResult(
                    scenario="c", device="d", verdict=Verdict.DIVERGENT, findings=tuple(shown)
                )
                (tmp_path / command[-1]).write_bytes(msgspec.json.encode(run) if sees else b"{}")
            return EndedCommands(codes=codes, why="no such setting")

        monkeypatch.setattr("racegate.jobs.fleet.own.run_commands", ended)
        target = RevisionTarget(name="a", revision="main")
        scripts = [scenario("two_row_cycle")]
        given: Any = {"seed": 1, "variables": {}, "folder": tmp_path, "timeout_s": 0}
        return judge_by_runs(target, scripts, **given)

    return answers


def test_a_revision_that_does_not_read_a_scenario_refuses_that_one_alone(
    answered: Callable[..., FleetAnswers],
) -> None:
    found = answered(*[1] * len(PLANTED), 2)
    assert found.selfcheck.is_sound
    assert found.shown["two-row-cycle"].result.refused == "no such setting"


def test_a_revision_that_does_not_see_what_is_planted_is_not_believed(
    answered: Callable[..., FleetAnswers],
) -> None:
    """Whatever its codes say."""
    found = answered(*[1] * len(PLANTED), 0, sees=False)
    assert (found.shown, found.selfcheck.canaries_found) == ({}, 0)
    assert "planted and not seen" in found.why
    assert answered(2, 1).why == "it cannot run what is planted: no such setting"
