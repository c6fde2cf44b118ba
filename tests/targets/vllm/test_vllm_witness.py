"""Witnesses of landings, the commands around them, and scenarios that are not run."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.cli import replay
from racegate.cli.foreign import engines as commands
from racegate.history.finding import Verdict
from racegate.history.replayed import ReplayOutcome
from racegate.history.schedule import Hold, parse_holds
from racegate.history.witness import SCHEMA
from racegate.jobs.triage import replays
from racegate.scenario.errors import BadInputError
from racegate.scenario.files import load_all_for, scenario_paths
from racegate.scenario.spec import Preempt, Request, Scenario
from racegate.targets.common.judge import ReleaseVerdict, judge, judge_under
from racegate.targets.common.result import wrong_lines
from racegate.targets.common.search import Effect
from racegate.targets.common.wire import Wrong
from racegate.targets.common.witnesses.witness import (
    TokenLoss,
    outcome_of,
    witnesses_of,
    write_witnesses,
)
from racegate.targets.vllm.cell import Cell, cannot_run
from racegate.targets.vllm.wire import STOP_END, STOP_MIN, ModelRunner, StateMode
from racegate.targets.vllm.witness import VLLM_WITNESSES, EngineWitness
from small_engine import Served, SmallEngine, Wait
from small_release import SmallReleases

ROOT = Path(__file__).parents[3]
COMMITTED = sorted((ROOT / "scenarios" / "vllm" / "witnesses").glob("*.json"))
WRONG = (Wrong(step=1, what="count", used=4, true=1),)
CHECKOUT = Cell(release="1.0", checkout="/src/vllm", runner=ModelRunner.V1, mode=StateMode.NONE)
CELL = Cell(release="1.0", runner=ModelRunner.V2, mode=StateMode.ALIGN)
SCENARIO = Scenario(
    name="small",
    title="one step",
    requests=(Request(name="A", arrive=0, prompt=(1,), max_tokens=1),),
)


def judged(wait: Wait) -> ReleaseVerdict:
    return judge(Served(SmallEngine(wait)), SCENARIO, CELL)


def test_a_witness_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = witnesses_of(EngineWitness, judged(Wait.BEHIND), SCENARIO)
    paths = write_witnesses(tmp_path / "new", found)
    assert [path.name for path in paths] == ["1.0-v2-align-small-1.json"]
    assert [VLLM_WITNESSES.load(path) for path in paths] == found
    assert (found[0].effect, found[0].subject) == (Effect.WRONG, CELL)
    assert found[0].wrong == WRONG
    assert found[0].finding is not None and found[0].finding.buffer == "counts.cpu"


@pytest.mark.parametrize(
    ("wait", "wrong", "outcome"),
    [
        (Wait.BEHIND, WRONG, ReplayOutcome.REPRODUCED),
        (Wait.BEHIND, (Wrong(step=9, what="something else", used=4, true=1),), ReplayOutcome.OTHER),
        (Wait.DEAD, WRONG, ReplayOutcome.NOTHING),
        (Wait.BEFORE, WRONG, ReplayOutcome.NOTHING),
    ],
)
def test_a_replay_is_held_against_what_was_wrong(
    wait: Wait, wrong: tuple[Wrong, ...], outcome: ReplayOutcome
) -> None:
    found = witnesses_of(EngineWitness, judged(Wait.BEHIND), SCENARIO)[0]
    witness = msgspec.structs.replace(found, wrong=wrong)
    again = judge_under(Served(SmallEngine(wait)), SCENARIO, CELL, witness.landing)
    assert outcome_of(again, witness) is outcome


def test_the_general_replay_hands_on_to_vllm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_witnesses(tmp_path, witnesses_of(EngineWitness, judged(Wait.BEHIND), SCENARIO))[0]

    monkeypatch.setattr(replays, "open_release", SmallReleases(Wait.BEHIND))
    result = CliRunner().invoke(replay.app, [str(path)])
    assert result.exit_code == 1
    assert "step 1: count: 4 used, 1 true" in result.output
    assert "reproduced 1 of 1: one step" in result.output


def test_a_witness_of_a_checkout_names_its_release_too() -> None:
    found = msgspec.structs.replace(judged(Wait.BEHIND), cell=CHECKOUT)
    (witness,) = witnesses_of(EngineWitness, found, SCENARIO)
    assert witness.subject == CHECKOUT
    assert "--release 1.0 --path /src/vllm" in " ".join(CHECKOUT.command)


def test_an_older_witness_of_a_checkout_says_how_it_is_replayed(tmp_path: Path) -> None:
    old = json.loads(COMMITTED[0].read_text()) | {"release": "/src/vllm"}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old))
    with pytest.raises(BadInputError, match="replay FILE --release X --path /src/vllm"):
        replays.replay_files([path], replays.ReplaySettings())


def test_what_was_wrong_is_read_from_the_words_of_the_first_schema(tmp_path: Path) -> None:
    lines = [
        "step 5: accepted count of request B in row 0: 4 used, 1 true",
        "step 1: blocks to zero: [11, 12] used, [5, 6] true",
        "request A delivers [5, 6], plain decoding [5, 7]",
    ]
    path = tmp_path / "old.json"
    old = json.loads(COMMITTED[0].read_text())
    path.write_text(json.dumps(old | {"wrong": lines}))
    witness = VLLM_WITNESSES.load(path)
    assert witness.wrong == (
        Wrong(step=5, what="accepted count of request B in row 0", used=4, true=1),
        Wrong(step=1, what="blocks to zero", used=[11, 12], true=[5, 6]),
    )
    assert witness.losses == (TokenLoss(request="A", tokens=(5, 6), plain=(5, 7)),)
    told = msgspec.structs.replace(
        judged(Wait.BEHIND).shown,
        wrong=witness.wrong,
        delivered={"A": (5, 6), "B": (1,)},
        plain={"A": (5, 7), "B": (1,)},
    )
    assert wrong_lines(told) == lines, "as reports say it still"
    path.write_text(json.dumps(old | {"wrong": ["nobody knows"]}))
    with pytest.raises(BadInputError, match="cannot read what was wrong: 'nobody knows'"):
        VLLM_WITNESSES.load(path)


def test_what_is_benign_has_no_witness() -> None:
    assert witnesses_of(EngineWitness, judged(Wait.DEAD), SCENARIO) == []
    assert witnesses_of(EngineWitness, judged(Wait.BEFORE), SCENARIO) == []


def test_a_witness_stores_what_happens_and_no_setting_of_another_engine(tmp_path: Path) -> None:
    """One says `mode`; that it said `cache_mode` of an engine that it does not run misled."""
    path = write_witnesses(tmp_path, witnesses_of(EngineWitness, judged(Wait.BEHIND), SCENARIO))[0]
    stored = msgspec.json.decode(path.read_bytes())
    assert stored["subject"]["mode"] and not {"model", "engine"} & stored["scenario"].keys()
    assert VLLM_WITNESSES.load(path).scenario == SCENARIO


@pytest.mark.parametrize(("blocks", "free"), [(128, None), (14, 14)])
def test_an_earlier_witness_reads_without_the_settings_that_it_stored(
    tmp_path: Path, blocks: int, free: int | None
) -> None:
    stored = msgspec.json.decode(COMMITTED[0].read_bytes())
    scenario = msgspec.to_builtins(SCENARIO)
    del scenario["free_blocks"]
    engine = {"depth": 2, "cache_mode": "none", "blocks": blocks}
    stored["scenario"] = scenario | {"model": {"numerics": "exact"}, "engine": engine}
    path = tmp_path / "earlier.json"
    path.write_bytes(msgspec.json.encode(stored))
    assert VLLM_WITNESSES.load(path).scenario == msgspec.structs.replace(SCENARIO, free_blocks=free)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": "racegate.vllm-witness/9"}, "written as"),
        ({"extra": 1}, "unknown field"),
        ({"title": "another"}, "altered since it was written"),
    ],
)
def test_a_witness_that_is_not_understood_is_refused(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    path = write_witnesses(tmp_path, witnesses_of(EngineWitness, judged(Wait.BEHIND), SCENARIO))[0]
    fields = msgspec.json.decode(path.read_bytes())
    assert fields["schema"] == SCHEMA
    path.write_bytes(msgspec.json.encode(fields | change))
    with pytest.raises(BadInputError, match=says):
        VLLM_WITNESSES.load(path)


def test_a_missing_witness_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="No such file"):
        VLLM_WITNESSES.load(tmp_path / "none.json")


def test_holds_are_read_as_they_are_written() -> None:
    text = "d2h counts@step#1 until host read counts@move#2"
    assert parse_holds([text, "d2h counts@step#2"]) == (
        Hold(op="d2h counts@step#1", until="host read counts@move#2"),
        Hold(op="d2h counts@step#2"),
    )
    with pytest.raises(BadInputError, match="OP until POINT"):
        parse_holds([" until forced"])


def test_a_release_that_is_not_set_up_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    scenario = str(next((ROOT / "scenarios" / "vllm").glob("*.toml")))
    result = CliRunner().invoke(commands.vllm, ["run", scenario, "--release", "0.0.1"])
    assert isinstance(result.exception, BadInputError)
    assert "racegate vllm setup --release 0.0.1" in str(result.exception)


def test_scenarios_of_vllm_can_be_run() -> None:
    loaded = load_all_for("vLLM", scenario_paths(ROOT / "scenarios" / "vllm"))
    assert len(loaded) >= 2
    assert [cannot_run(scenario) for _, scenario in loaded] == [""] * len(loaded)


def test_a_scenario_that_cannot_be_run_says_why() -> None:
    preempting = msgspec.structs.replace(SCENARIO, events=(Preempt(step=1, request="A"),))
    served = Served(SmallEngine(Wait.BEFORE))
    found = judge(served, preempting, CELL)
    assert (found.verdict, found.refused) == (Verdict.INCONCLUSIVE, "it needs preempt")
    assert served.plans == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"temperature": 0.5}, "sampled at more than"),
        ({"grammar_modulus": 3}, "a grammar that forbids"),
        ({"stop_token": 1}, "stop token"),
        ({"stop_after": STOP_MIN - 1}, f"before its {STOP_MIN}th"),
        ({"stop_after": STOP_END, "max_tokens": STOP_END}, "or late"),
        ({"max_tokens": 512}, "longer than 512"),
    ],
)
def test_a_request_that_cannot_be_run_says_why(change: dict[str, object], says: str) -> None:
    request = msgspec.structs.replace(SCENARIO.requests[0], **change)
    assert says in cannot_run(msgspec.structs.replace(SCENARIO, requests=(request,)))


def test_committed_witnesses_are_of_committed_scenarios() -> None:
    folder = ROOT / "scenarios" / "vllm"
    scenarios = [scenario for _, scenario in load_all_for("vLLM", scenario_paths(folder))]
    found = [VLLM_WITNESSES.load(path) for path in COMMITTED]
    assert {witness.subject.release for witness in found} >= {"0.22.1", "0.24.0"}
    for witness in found:
        assert witness.scenario in scenarios and witness.wrong and witness.effect is Effect.WRONG
