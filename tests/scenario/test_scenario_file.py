"""Scenario files are read strictly: every mistake names the file, the path in the file and the
reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from racegate.scenario.config import resolve
from racegate.scenario.files import FILE_BYTES_MAX, load, parse, scenario_paths
from racegate.scenario.settings import (
    CacheMode,
    Cascade,
    DrafterKind,
    EngineSpec,
    LayerKind,
    ModelSpec,
    TransferMode,
)
from racegate.scenario.spec import REQUESTS_MAX, TOKENS_MAX, OwnScenario, Request, ScenarioError
from racegate.scenario.untrusted.shapes import line_of
from racegate.scenario.validation import validate

GOOD = """
schema = 1
name = "x"
title = "t"
[[requests]]
name = "A"
prompt_len = 4
max_tokens = 3
"""


def read(text: str) -> OwnScenario:
    return parse(text, source="x.toml", folder=Path())


def test_a_file_becomes_explicit_data() -> None:
    scenario = read(GOOD)
    (request,) = scenario.requests
    assert len(request.prompt) == 4
    assert all(0 <= token < scenario.model.vocab_size for token in request.prompt)
    assert 1 <= min(request.accepts) <= max(request.accepts) <= 4


def test_the_same_file_is_the_same_scenario() -> None:
    assert read(GOOD) == read(GOOD)
    assert read(GOOD) != read(GOOD.replace('title = "t"', 'title = "t"\nseed = 2'))


@pytest.mark.parametrize(
    ("section", "images", "path", "reason"),
    [
        ("[2, 2]", "[]", "$.model.mrope_section", "three counts that make 4"),
        ("[2, 2, 1]", "[]", "$.model.mrope_section", "three counts that make 4"),
        ("[5, 0, -1]", "[]", "$.model.mrope_section", "three counts that make 4"),
        ("[]", "[{ start = 0, grid = [1, 1, 1] }]", "$.requests[0].images", "model.mrope_section"),
        (
            "[2, 1, 1]",
            "[{ start = 0, grid = [1, 0, 1] }]",
            "$.requests[0].images[0].grid",
            "each 1..",
        ),
        (
            "[2, 1, 1]",
            "[{ start = 1, grid = [1, 1, 1] }, { start = 1, grid = [1, 1, 1] }]",
            "$.requests[0].images[1].start",
            "2 at least",
        ),
        (
            "[2, 1, 1]",
            "[{ start = 1, grid = [1, 3, 1] }]",
            "$.requests[0].images[0]",
            "the prompt's last one is text",
        ),
    ],
)
def test_coordinates_that_cannot_be_say_why(
    section: str, images: str, path: str, reason: str
) -> None:
    text = GOOD.replace("max_tokens = 3", f"max_tokens = 3\nimages = {images}")
    with pytest.raises(ScenarioError) as error:
        read(f"{text}\n[model]\nhead_size = 8\nmrope_section = {section}\n")
    assert error.value.path == path
    assert reason in error.value.reason


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("prompt_len = 4", "promt_len = 4"), "`promt_len`; near it: prompt_len, prompt (line 6)"),
        (("[expect]", "[expekt]"), "`expekt`; near it: expect (line 8)"),
        (("schema = 1", "schema = 2"), "must be 1, is 2 (line 1)"),
        (("max_tokens = 3", "max_tokens = 0"), "must be 1..131072 (line 7)"),
        (("condense_moves = 1", "condense_move = 1"), "`condense_move`; near it: condense_moves"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_with_near_names(
    change: tuple[str, str], told: str
) -> None:
    text = 'schema = 1\nname = "t"\ntitle = "t"\n[[requests]]\nname = "A"\n'
    text += "prompt_len = 4\nmax_tokens = 3\n[expect]\ncondense_moves = 1\n"
    with pytest.raises(ScenarioError) as error:
        read(text.replace(*change))
    assert told in str(error.value)


def test_a_line_is_found_below_the_nearest_place_that_begins_one() -> None:
    text = "[engine]\nblocks = 3\n[[requests]]\n[[requests]]\nimages = [{start = 1}]\n"
    assert line_of(text, "$.engine.blocks") == 2
    assert line_of(text, "$.requests[1]") == 4
    assert line_of(text, "$.requests[1].images[0].grid") == 5
    assert line_of(text, "$.gone") is None


def test_a_shared_prefix_is_shared() -> None:
    more = '[[requests]]\nname = "B"\nprompt_len = 6\nshares = "A"\nshares_tokens = 3\n'
    scenario = read(GOOD + more)
    first, second = scenario.requests
    assert first.prompt[:3] == second.prompt[:3]
    assert len(second.prompt) == 6


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        (("schema = 1", "schema = 2"), "$.schema", "must be 1"),
        (("schema = 1\n", ""), "$.schema", "is None"),
        (('title = "t"', 'title = "t"\ncolour = 1'), "$", "unknown field `colour`"),
        (("prompt_len = 4", "prompt_len = 4\nspeed = 1"), "$.requests[0]", "unknown field `speed`"),
        (("prompt_len = 4", 'prompt_len = "4"'), "$.requests[0].prompt_len", "Expected `int"),
        (("prompt_len = 4", "prompt_len = 4.0"), "$.requests[0].prompt_len", "Expected `int"),
        (("prompt_len = 4\n", ""), "$.requests[0]", "exactly one of prompt and prompt_len"),
        (("prompt_len = 4", "prompt_len = 0"), "$.requests[0].prompt_len", "must be 1.."),
        (("prompt_len = 4", "prompt = [1, 97]"), "$.requests[0].prompt", "tokens must be 0..96"),
        (("prompt_len = 4", "prompt_len = 999999999"), "$.requests[0].prompt_len", "must be 1.."),
        (("max_tokens = 3", "max_tokens = 0"), "$.requests[0].max_tokens", "must be"),
        (
            ("max_tokens = 3", "max_tokens = 3\nstop_after = 4"),
            "$.requests[0].stop_after",
            "1..max",
        ),
        (
            ("max_tokens = 3", "max_tokens = 3\nstop_token = 97"),
            "$.requests[0].stop_token",
            "0..96",
        ),
        (("max_tokens = 3", "max_tokens = 3\naccepts = [0]"), "$.requests[0].accepts", "counts of"),
        (("max_tokens = 3", "max_tokens = 200"), "$.requests[0]", "model_len_max is 96"),
        (
            ("max_tokens = 3", "max_tokens = 3\ngrammar_modulus = 1"),
            "$.requests[0].grammar_modulus",
            "2..97",
        ),
        (
            ("max_tokens = 3", "max_tokens = 3\ntemperature = -1.0"),
            "$.requests[0].temperature",
            "0..",
        ),
        (('name = "A"', 'name = "A B"'), "$.requests[0].name", "letters, digits"),
        (("prompt_len = 4", 'prompt_len = 4\nshares = "Z"'), "$.requests[0].shares", "no earlier"),
    ],
)
def test_a_mistake_names_file_path_and_reason(
    change: tuple[str, str], path: str, reason: str
) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(GOOD.replace(*change, 1))
    assert caught.value.source == "x.toml"
    assert caught.value.path == path
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("extra", "path", "reason"),
    [
        ('[[events]]\nkind = "explode"\nstep = 1\n', "$.events[0].kind", "Invalid value"),
        (
            '[[events]]\nkind = "abort"\nstep = 1\nrequest = "Z"\n',
            "$.events[0].request",
            "no request",
        ),
        (
            '[[events]]\nkind = "abort"\nstep = 999\nrequest = "A"\n',
            "$.events[0].step",
            "steps_max",
        ),
        ('[[events]]\nkind = "budget"\nstep = 1\ntokens = 65\n', "$.events[0].tokens", "0..64"),
        (
            '[[events]]\nkind = "rotate"\nstep = 1\nrequests = ["A", "A"]\n',
            "$.events[0].requests",
            "two different",
        ),
        (
            '[[events]]\nkind = "budget"\nstep = 1\ntokens = 5\n' * 2,
            "$.events[1]",
            "stands twice",
        ),
        ('[[events]]\nkind = "dummy"\nstep = 1\nrows = 9\n', "$.events[0].rows", "1..8"),
        ('[engine]\nzeroing = "all"\n', "$.engine.zeroing", "Invalid enum value"),
        ("[engine]\ncapture_rows = [4, 2]\n", "$.engine.capture_rows", "rising"),
        ("[engine]\ndepth = 9\n", "$.engine.depth", "1..4"),
        ("[engine]\nblocks = 3\n", "$.requests[0]", "blocks"),
        (
            '[engine]\ncache_mode = "align"\nstate_interval = 6\n',
            "$.engine.state_interval",
            "multiple of block_size",
        ),
        (
            '[engine]\ncache_mode = "align"\nprefill_chunk_max = 4\n',
            "$.engine.prefill_chunk_max",
            "at least state_interval",
        ),
        ("[model]\nvocab_size = 1\n", "$.model.vocab_size", "2..4096"),
        ("[model]\nhead_size = 3\n", "$.model.head_size", "even"),
        ("[model]\nheads = 4\nkv_heads = 3\n", "$.model.kv_heads", "divide"),
        ("[model]\nkey_heads = 0\n", "$.model.key_heads", "divide"),
        ("[model]\ngroups = 4\n", "$.model.groups", "divide"),
        ("[model]\nrotary_size = 3\n", "$.model.rotary_size", "even"),
        ("[model]\nrotary_size = 2\nmrope_section = [1, 1, 0]\n", "$.model.mrope_section", "1"),
        ("[model]\nmlp_size = -1\n", "$.model.mlp_size", "0..1024"),
        ('[model]\nparts = ["biases", "biases"]\n', "$.model.parts", "twice"),
        ("[model]\nhead_size = 256\nheads = 256\n", "$.model", "bytes"),
        ("[expect]\nrow_moves = -1\n", "$.expect.row_moves", "negative"),
    ],
)
def test_an_impossible_value_names_its_path(extra: str, path: str, reason: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        read(GOOD + extra)
    assert caught.value.path == path
    assert reason in caught.value.reason


def test_what_is_not_toml_says_where() -> None:
    with pytest.raises(ScenarioError, match=r"not TOML: .*line 1"):
        read("schema = = 1")


def test_a_missing_file_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(tmp_path / "none.toml")


def test_a_binary_file_is_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ScenarioError, match="cannot be read"):
        load(path)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.toml"
    path.write_bytes(b"#" * (FILE_BYTES_MAX + 1))
    with pytest.raises(ScenarioError, match="at most"):
        load(path)


def _request(name: str, **values: Any) -> Request:
    return Request(**({"name": name, "arrive": 0, "prompt": (1, 2), "max_tokens": 2} | values))


def test_sizes_are_bounded() -> None:
    many = tuple(_request(f"R{i}") for i in range(REQUESTS_MAX + 1))
    with pytest.raises(ScenarioError, match=r"\$\.requests: must hold"):
        validate(OwnScenario(name="x", title="t", requests=many))
    engine = EngineSpec(model_len_max=8192, blocks=4096)
    long = tuple(_request(f"R{i}", prompt=(1,) * 8000) for i in range(TOKENS_MAX // 8000 + 1))
    with pytest.raises(ScenarioError, match="tokens in all"):
        validate(OwnScenario(name="x", title="t", engine=engine, requests=long))


@pytest.mark.parametrize(
    ("engine", "drafts", "drafter", "warnings"),
    [
        (EngineSpec(), 3, DrafterKind.SCRIPTED, 0),
        (EngineSpec(drafter=DrafterKind.NONE), 0, DrafterKind.NONE, 1),
        (EngineSpec(draft_len_max=0), 0, DrafterKind.NONE, 1),
        (
            EngineSpec(drafter=DrafterKind.EXTRACT_HIDDEN_STATES),
            1,
            DrafterKind.EXTRACT_HIDDEN_STATES,
            1,
        ),
    ],
)
def test_options_that_exclude_each_other_are_resolved_with_a_warning(
    engine: EngineSpec, drafts: int, drafter: DrafterKind, warnings: int
) -> None:
    resolved = resolve(OwnScenario(name="x", title="t", engine=engine, requests=(_request("A"),)))
    assert resolved.scenario.engine.draft_len_max == drafts
    assert resolved.scenario.engine.drafter is drafter
    assert len(resolved.changes) == warnings


@pytest.mark.parametrize(
    ("model", "engine", "because"),
    [
        (ModelSpec(), EngineSpec(), "drafts in flight"),
        (ModelSpec(), EngineSpec(depth=1), None),
        (ModelSpec(), EngineSpec(drafter=DrafterKind.NONE), None),
        (ModelSpec(layers=(LayerKind.MAMBA2,)), EngineSpec(depth=1), "no layer attends"),
    ],
)
def test_cascade_attention_gives_way(
    model: ModelSpec, engine: EngineSpec, because: str | None
) -> None:
    asked = msgspec.structs.replace(engine, cascade=Cascade.ON)
    scenario = OwnScenario(
        name="x", title="t", model=model, engine=asked, requests=(_request("A"),)
    )
    resolved = resolve(scenario)
    assert resolved.scenario.engine.has_cascade is (because is None)
    texts = [change.text for change in resolved.changes if change.option == "cascade"]
    assert len(texts) == (because is not None)
    assert all(f"{because}" in text and "cascade on becomes off" in text for text in texts)


@pytest.mark.parametrize("mode", CacheMode)
def test_what_carries_prefixes_gives_way_where_none_leaves(mode: CacheMode) -> None:
    asked = EngineSpec(cache_mode=mode, transfers=TransferMode.NIC, prefixes_max=2)
    resolved = resolve(OwnScenario(name="x", title="t", engine=asked, requests=(_request("A"),)))
    is_kept = mode is CacheMode.OFFLOAD
    assert (resolved.scenario.engine.transfers is TransferMode.NIC) is is_kept
    because = f"cache mode {mode} leaves prefixes where they are"
    told = [change.text for change in resolved.changes]
    changes = ["transfers nic becomes streams", "prefixes_max 2 becomes None"]
    assert told == ([] if is_kept else [f"{because}: {change}" for change in changes])


@pytest.mark.parametrize("carried", TransferMode)
def test_loads_fail_where_somebody_tells(carried: TransferMode) -> None:
    asked = EngineSpec(cache_mode=CacheMode.OFFLOAD, transfers=carried, failing_loads=(2, 5))
    resolved = resolve(OwnScenario(name="x", title="t", engine=asked, requests=(_request("A"),)))
    is_told = carried is not TransferMode.STREAMS
    assert resolved.scenario.engine.failing_loads == ((2, 5) if is_told else ())
    assert [change.option for change in resolved.changes] == ["failing_loads"] * (not is_told)


def test_scenarios_are_frozen() -> None:
    with pytest.raises(AttributeError):
        read(GOOD).name = "y"  # type: ignore[misc]


def test_scenarios_survive_json() -> None:
    scenario = read(GOOD)
    assert msgspec.json.decode(msgspec.json.encode(scenario), type=OwnScenario) == scenario


@pytest.mark.parametrize(("name", "why"), [("gone", "there is no such folder"), (".", "no *.toml")])
def test_a_folder_without_scripts_says_which_and_why(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=re.escape(why)) as error:
        scenario_paths(tmp_path / name)
    assert str(error.value).startswith(str(tmp_path / name))
    assert "--scenarios" in str(error.value)
    assert "$" not in str(error.value)
