"""Covering arrays: a crossing is a scenario, an array has the pairs it was asked for and no row too
many, and the shipped scripts have every possible pair, float and exact apart.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from racegate.cli.app import app
from racegate.explore.crossing import crossed, fitted, in_numerics
from racegate.explore.features.apart import POSSIBLE_APART, missing_apart, pairs_of
from racegate.explore.generate import generate, seeded
from racegate.history.finding import Verdict
from racegate.jobs.gate import GateJudge, GateSpec, run_gate
from racegate.measure.evaluation.cover_scripts import scripts_of
from racegate.measure.evaluation.covering import (
    CoverRow,
    CoverSpec,
    cover,
    minimised,
    own_pairs,
    row_of,
)
from racegate.scenario.files import load_all, parse, scenario_paths
from racegate.scenario.settings import EngineSpec, Numerics
from racegate.scenario.spec import Budget, Dummy, OwnScenario, Request, ScenarioError
from racegate.scenario.validation import validate
from support import SCENARIOS


def drawn(index: int) -> OwnScenario:
    return generate(seeded(3, index), name=f"drawn-{index}")


@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 1 << 16))
def test_a_crossing_is_a_scenario_or_is_refused(first: int, second: int, seed: int) -> None:
    try:
        child = crossed(drawn(first), drawn(second), Random(seed))
    except ScenarioError:
        return
    assert validate(child) is child
    assert child == crossed(drawn(first), drawn(second), Random(seed))
    for numerics in POSSIBLE_APART:
        assert in_numerics(child, numerics).model.numerics is numerics


def test_an_array_has_what_it_was_asked_for_and_nothing_too_many(tmp_path: Path) -> None:
    wanted = pairs_of(["numerics = float32", "depth = 2", "rejection", "random row", "k = 3"])
    spec = CoverSpec(seed=1, draws=12, tries=6)
    left: list[int] = []
    rows = cover(wanted, Numerics.FLOAT32, spec, on_row=lambda row, more: left.append(more))
    assert left == sorted(left, reverse=True) and left[-1] == 0
    small = minimised([*rows, *rows], wanted, 12)
    assert all(own_pairs(row, small, wanted) for row in small)
    assert sum(row.ops for row in small) <= sum(row.ops for row in rows)
    for script in scripts_of(small, wanted):
        again = row_of(parse(script.text, source=script.name, folder=tmp_path))
        assert again is not None and again.scenario.name == script.name
        assert len(again.pairs & wanted) >= script.own > 0
        assert f"# From: {script.own} pair{'s' * (script.own > 1)} of" in script.text
    names = [script.name for script in scripts_of(small, wanted)]
    assert not {script.name for script in scripts_of(small, wanted, taken=names)} & set(names)
    again = cover(wanted, Numerics.FLOAT32, msgspec.structs.replace(spec, start=started(small)))
    assert sum(row.ops for row in again) <= sum(row.ops for row in small)


def started(rows: list[CoverRow]) -> tuple[OwnScenario, ...]:
    return tuple(row.scenario for row in rows)


def test_every_possible_pair_is_in_a_shipped_script_and_all_are_proved() -> None:
    scripts = GateSpec(scenarios=tuple(load_all(scenario_paths(SCENARIOS))))
    result = run_gate(scripts, look=GateJudge(budget=None))
    assert result.verdict is Verdict.PROVED
    assert {pair.numerics: pair.possible - pair.covered for pair in result.pairs} == {
        Numerics.EXACT: 0,
        Numerics.FLOAT32: 0,
    }


def test_what_a_folder_misses_is_named(tmp_path: Path) -> None:
    script = SCENARIOS / "two_row_cycle.toml"
    (tmp_path / script.name).write_text(script.read_text())
    result = CliRunner().invoke(app, ["scenarios", "cover", "--scenarios", str(tmp_path)])
    assert result.exit_code == 4
    assert "missing in exact: depth = 1 and" in result.output
    assert "missing in float32: depth = 2 and" in result.output


def test_a_pair_of_one_numerics_says_nothing_of_the_other() -> None:
    features = frozenset(["numerics = exact", "depth = 2", "rejection"])
    missing = missing_apart([features])
    assert ("depth = 2", "rejection") not in missing[Numerics.EXACT]
    assert missing[Numerics.FLOAT32] == POSSIBLE_APART[Numerics.FLOAT32]


def test_what_is_crossed_is_cut_to_what_the_other_model_and_engine_allow() -> None:
    """A budget and dummy rows to the engine's bounds, a count of tokens to the tokens left;
    what fits stays as it is.
    """
    prompt = tuple(range(1, 9))
    request = Request(name="A", arrive=0, prompt=prompt, max_tokens=8, stop_after=7)
    events = (Budget(step=1, tokens=90), Budget(step=2, tokens=3), Dummy(step=3, rows=9))
    engine = EngineSpec(model_len_max=12, rows_max=8, tokens_per_step_max=6, prefill_chunk_max=6)
    one = OwnScenario(name="s", title="", requests=(request,), events=events, engine=engine)
    found = fitted(one)
    assert (found.requests[0].max_tokens, found.requests[0].stop_after) == (4, 4)
    assert [each.tokens for each in found.events if isinstance(each, Budget)] == [6, 3]
    assert [each.rows for each in found.events if isinstance(each, Dummy)] == [6]
    plain = msgspec.structs.replace(request, stop_after=None, max_tokens=3)
    assert fitted(msgspec.structs.replace(one, requests=(plain,))).requests[0].stop_after is None
