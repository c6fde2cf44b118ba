"""An adapter beside another one: what only the change shows is a finding, and nothing else is."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from test_judge import ORDERED, RACY, SCENARIO, SEEN
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import Comparison
from racegate.jobs.foreign.adapter_bases import look_beside
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.errors import AdapterError
from racegate.targets.adapters.judge import AdapterJudge
from repository import ROOT
from scripted_engine import observation, scripted

OBSERVING = {"offers": ["plain", "observations"], **SEEN}
EXAMPLES = ROOT / "docs" / "examples"
TOY = (sys.executable, str(EXAMPLES / "toy_adapter.py"), "plain", "holds")
Lines = Sequence[Mapping[str, Any]]


def beside(folder: Path, base: Lines, change: Lines, *words: str, **more: Any) -> Comparison:
    """words: further ones of the change's command; more: its runs beside the eager one"""
    with ExitStack() as stack:
        judges = []
        for name, runs, extra in (
            ("base", {"": base}, ()),
            ("change", {"": change, **more}, words),
        ):
            (folder / name).mkdir()
            command = [*scripted(folder / name, runs, **OBSERVING), *extra]
            adapter = stack.enter_context(Adapter(command))
            judges.append(lambda adapter=adapter: AdapterJudge(adapter, SCENARIO))
        found = look_beside(*judges).result.comparison
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("base", "change", "new", "repaired", "known"),
    [
        (ORDERED, ORDERED, 0, 0, 0),
        (RACY, RACY, 0, 0, 1),
        (ORDERED, RACY, 1, 0, 0),
        (RACY, ORDERED, 0, 1, 0),
    ],
)
def test_conflicts_are_new_repaired_or_known(
    tmp_path: Path, base: Lines, change: Lines, new: int, repaired: int, known: int
) -> None:
    found = beside(tmp_path, base, change)
    assert (len(found.new), len(found.repaired), found.known) == (new, repaired, known)
    assert found.changed is None
    assert found.code is (ExitCode.FINDING if new else ExitCode.CLEAN)


def test_a_value_that_differs_is_named_with_its_step(tmp_path: Path) -> None:
    lines = [[*ORDERED, observation(1, kept=[2, 3]), observation(2, kept=[n])] for n in (4, 5)]
    changed = beside(tmp_path, *lines).changed
    assert changed is not None
    assert changed.message == "step 2: sampled.kept[0] is 5, in the base 4"
    assert (changed.step, changed.field) == (2, "sampled.kept[0]")


def test_an_engine_that_differs_from_itself_says_nothing_of_a_change(tmp_path: Path) -> None:
    lines = [[*ORDERED, observation(1, kept=[n])] for n in (4, 5, 6)]
    with pytest.raises(AdapterError, match="two eager runs of one differ"):
        beside(tmp_path, lines[0], lines[1], "unsteady", again=lines[2])


def test_the_gate_of_an_adapter_beside_itself_passes(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    options = ["--scenarios", str(EXAMPLES), "--json", str(out), "--against", shlex.join(TOY)]
    done = CliRunner().invoke(app, ["adapter", "gate", *options, "--", *TOY])
    assert done.exit_code == ExitCode.CLEAN, done.output
    assert "SAME as toy" in done.output
    results = json.loads(out.read_text())["results"]
    assert results and all(one["comparison"]["changed"] is None for one in results)
