"""The scenarios in which requests of every sort meet what happens to requests."""

from __future__ import annotations

import runpy
from pathlib import Path

from racegate.scenario.files import load_for
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.wire import ModelRunner, StateMode

ROOT = Path(__file__).parents[3]
DRAW = runpy.run_path(str(ROOT / "reports" / "vllm" / "pairs.py"))


def test_the_committed_ones_are_those_that_are_chosen(tmp_path: Path) -> None:
    DRAW["write"](tmp_path)
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    folder = ROOT / "scenarios" / "vllm"
    assert made == {file.name: file.read_text() for file in folder.glob("pairs_*.toml")}
    assert len(made) >= 10


def test_each_pair_that_can_occur_does() -> None:
    drawn = [DRAW["drawn"](seed) for seed in range(400)]
    chosen = DRAW["chosen"](drawn)
    found = set().union(*(one.pairs for one in chosen))
    assert found == set().union(*(one.pairs for one in drawn))
    assert {("sort", "3"), ("end", "stopped")} in map(set, found)
    assert (("before", "warm"), ("behind", "greedy")) in found


def test_they_run_on_both_runners_whether_states_are_kept_or_not() -> None:
    files = sorted((ROOT / "scenarios" / "vllm").glob("pairs_*.toml"))
    cells = [Cell(release="1", runner=r, mode=m) for r in ModelRunner for m in list(StateMode)[:2]]
    for file in files:
        scenario = load_for("vLLM", file)
        assert [cell.cannot_run(scenario) for cell in cells] == [""] * len(cells)
