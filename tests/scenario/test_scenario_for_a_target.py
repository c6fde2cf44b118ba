"""What happens is one document for every target; settings of our own engine stand beside it, and
are refused where nobody obeys them.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from racegate.scenario.files import load, load_all_for, load_for, parse
from racegate.scenario.settings import CacheMode, EngineSpec, ModelSpec
from racegate.scenario.spec import (
    Caches,
    OwnScenario,
    Pause,
    Scenario,
    ScenarioError,
    configured,
    happening,
    settings_of,
)
from racegate.scenario.validation import validate
from racegate.scenario.writing import toml_of

SCRIPT = """
schema = 1
name = "x"
title = "t"

[[requests]]
name = "A"
prompt_len = 4
max_tokens = 3

[[requests]]
name = "B"
prompt = [5, 6]
max_tokens = 200

[[events]]
kind = "abort"
step = 3
request = "A"

[expect]
aborts_in_flight = 1
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "x.toml"
    path.write_text(text)
    return path


def test_a_target_gets_what_happens_and_no_setting(tmp_path: Path) -> None:
    scenario = load_for("vLLM", written(tmp_path, SCRIPT))
    assert type(scenario) is Scenario
    assert [len(request.prompt) for request in scenario.requests] == [4, 2]
    assert scenario.events and scenario.expect.aborts_in_flight == 1
    assert scenario.free_blocks is None
    assert not {"model", "engine"} & msgspec.to_builtins(scenario).keys()


def test_a_target_s_requests_are_as_long_as_the_target_allows(tmp_path: Path) -> None:
    """The limits of our own engine are its own: here of a model that is 96 tokens long."""
    path = written(tmp_path, SCRIPT)
    load_for("vLLM", path)
    with pytest.raises(ScenarioError, match="model_len_max is 96"):
        load(path)


@pytest.mark.parametrize("table", ["model", "engine"])
def test_settings_that_a_target_would_ignore_are_refused(tmp_path: Path, table: str) -> None:
    path = written(tmp_path, f"{SCRIPT}\n[{table}]\n")
    with pytest.raises(ScenarioError) as caught:
        load_for("SGLang", path)
    assert (caught.value.source, caught.value.path) == (str(path), f"$.{table}")
    assert f"[{table}] is of racegate's own engine" in caught.value.reason
    assert "SGLang would ignore it: leave it out" in caught.value.reason
    assert "free_blocks" not in caught.value.reason


def test_who_asks_for_few_blocks_is_told_how(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="free_blocks"):
        load_for("vLLM", written(tmp_path, f"{SCRIPT}\n[engine]\nblocks = 14\n"))
    asked = SCRIPT.replace('title = "t"', 'title = "t"\nfree_blocks = 14')
    assert load_for("vLLM", written(tmp_path, asked)).free_blocks == 14


def test_free_blocks_are_no_setting_of_our_own_engine(tmp_path: Path) -> None:
    text = SCRIPT.replace('title = "t"', 'title = "t"\nfree_blocks = 14').replace("200", "2")
    with pytest.raises(ScenarioError, match=r"engine\.blocks is ours") as caught:
        load(written(tmp_path, text))
    assert caught.value.path == "$.free_blocks"


PAUSES = """
[[pauses]]
step = 2
turns = 0
caches = "cleared"

[[pauses]]
step = 4
"""


def test_a_client_pauses_a_release_and_not_our_own_engine(tmp_path: Path) -> None:
    scenario = load_for("vLLM", written(tmp_path, SCRIPT + PAUSES))
    assert scenario.pauses == (Pause(step=2, turns=0, caches=Caches.CLEARED), Pause(step=4))
    assert load_for("vLLM", written(tmp_path, toml_of(scenario))) == scenario
    with pytest.raises(ScenarioError, match="never paused") as caught:
        load(written(tmp_path, (SCRIPT + PAUSES).replace("200", "2")))
    assert caught.value.path == "$.pauses"


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (("step = 4", "step = 300"), "$.pauses[1].step"),
        (("turns = 0", "turns = -1"), "$.pauses[0].turns"),
        (('"cleared"', '"lost"'), "$.pauses[0].caches"),
    ],
)
def test_pauses_are_possible(tmp_path: Path, change: tuple[str, str], path: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_for("vLLM", written(tmp_path, SCRIPT + PAUSES.replace(*change)))
    assert caught.value.path == path


@pytest.mark.parametrize("blocks", [0, -1])
def test_a_pool_has_a_free_block(tmp_path: Path, blocks: int) -> None:
    text = SCRIPT.replace('title = "t"', f'title = "t"\nfree_blocks = {blocks}')
    with pytest.raises(ScenarioError, match="at least 1"):
        load_for("vLLM", written(tmp_path, text))


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (("prompt = [5, 6]", "prompt = [5, -6]"), "$.requests[1].prompt"),
        (("prompt = [5, 6]", "prompt = []"), "$.requests[1].prompt"),
        (("step = 3", "step = 300"), "$.events[0].step"),
        (('request = "A"', 'request = "C"'), "$.events[0].request"),
        (("aborts_in_flight = 1", "aborts_in_flight = -1"), "$.expect.aborts_in_flight"),
    ],
)
def test_what_happens_on_a_target_is_possible(
    tmp_path: Path, change: tuple[str, str], path: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        load_for("vLLM", written(tmp_path, SCRIPT.replace(*change)))
    assert caught.value.path == path


def test_two_scripts_of_a_target_do_not_share_a_name(tmp_path: Path) -> None:
    first = written(tmp_path, SCRIPT)
    second = tmp_path / "y.toml"
    second.write_text(SCRIPT)
    with pytest.raises(ScenarioError, match="is also in"):
        load_all_for("vLLM", [first, second])


def own() -> OwnScenario:
    text = SCRIPT.replace("200", "2")
    return parse(f"{text}\n[engine]\ndepth = 3\n\n[model]\nseed = 7\n", source="x", folder=Path())


def test_a_script_without_its_settings_is_what_happens_in_it() -> None:
    script, scenario = own(), happening(own())
    assert type(scenario) is Scenario
    assert configured(scenario, model=script.model, engine=script.engine) == script
    assert configured(scenario) == msgspec.structs.replace(
        script, model=ModelSpec(), engine=EngineSpec()
    )


def test_settings_are_named_where_they_are_not_the_defaults() -> None:
    assert settings_of(own()) == ("model.seed", "engine.depth")
    assert settings_of(configured(happening(own()))) == ()


def test_what_happens_is_written_without_tables_of_settings(tmp_path: Path) -> None:
    text = toml_of(configured(happening(own())))
    assert load_for("vLLM", written(tmp_path, text)) == happening(own())
    assert "[engine]" in toml_of(own())


def test_settings_are_judged_only_where_there_are_some() -> None:
    bad = msgspec.structs.replace(own().engine, cache_mode=CacheMode.ALIGN, state_interval=3)
    with pytest.raises(ScenarioError, match="multiple of block_size"):
        validate(msgspec.structs.replace(own(), engine=bad))
    assert validate(happening(own())) == happening(own())
