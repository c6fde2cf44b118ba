"""The scenarios in which requests of every sort meet what happens to requests."""

from __future__ import annotations

import runpy
from pathlib import Path

from racegate.cli.foreign.selection import draw
from racegate.scenario.files import load_for
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.sorts import drawn
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
    every = [drawn(seed) for seed in range(400)]
    found = set().union(*(one.pairs for one in DRAW["chosen"](every)))
    assert found == set().union(*(one.pairs for one in every))
    assert {("sort", "3"), ("end", "stopped")} in map(set, found)
    assert (("before", "warm"), ("behind", "greedy")) in found


def test_they_run_on_both_runners_whether_states_are_kept_or_not(tmp_path: Path) -> None:
    chosen = sorted((ROOT / "scenarios" / "vllm").glob("pairs_*.toml"))
    again, other = tmp_path / "again", tmp_path / "other"
    for folder, seed in ((tmp_path, 7), (again, 7), (other, 8)):
        draw(out=folder, count=12, seed=seed)
    drawn_files = sorted(tmp_path.glob("*.toml"))
    assert [file.stem for file in drawn_files] == [f"drawn_7_{at:02}" for at in range(12)]
    same = {file.name: file.read_text() for file in again.iterdir()}
    assert same == {file.name: file.read_text() for file in drawn_files}
    cells = [Cell(release="1", runner=r, mode=m) for r in ModelRunner for m in list(StateMode)[:2]]
    files = (*chosen, *drawn_files, *other.iterdir())
    scenarios = {file: load_for("vLLM", file) for file in files}
    for scenario in scenarios.values():
        assert [cell.cannot_run(scenario) for cell in cells] == [""] * len(cells)
    requests = [scenarios[file].requests for file in (*drawn_files, *other.iterdir())]
    assert len(set(requests)) == 24  # none is drawn twice
