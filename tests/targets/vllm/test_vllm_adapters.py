"""Requests with adapters: what is asked of a release, what is observed, and what is true of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from safetensors.torch import load_file

from racegate.scenario.expect import Expect
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.wire import Fidelity
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.scripted.adapters import asked_adapters, with_adapter
from racegate.targets.vllm.inside.scripted.model import Script, config
from racegate.targets.vllm.inside.scripted.params import penalties_of
from racegate.targets.vllm.inside.truth.compare import Truth
from racegate.targets.vllm.inside.watch_steps import watch_adapters
from racegate.targets.vllm.wire import AdapterMode, ModelRunner, StateMode

NAMES = ("A", "B", "C", "D")
SCENARIO = Scenario(
    name="s",
    title="t",
    requests=tuple(Request(name=n, arrive=0, prompt=(1, 2), max_tokens=9) for n in NAMES),
)
CELL = Cell(release="1.0", runner=ModelRunner.V1, mode=StateMode.NONE, adapters=AdapterMode.LORA)


def test_two_of_three_requests_have_an_adapter_that_fits_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asked_adapters(AdapterMode.LORA, tmp_path)
    assert asked["enable_lora"] and asked["max_loras"] == 2
    monkeypatch.setitem(
        __import__("sys").modules, "vllm.lora.request", SimpleNamespace(LoRARequest=lambda *of: of)
    )
    given = [with_adapter(AdapterMode.LORA, index, str(tmp_path)) for index in range(4)]
    assert given[0] == given[3] == {}
    for number, one in enumerate(given[1:3], start=1):
        name, identity, path = one["lora_request"]
        assert (name, identity) == (f"adapter {number}", number)
        weights = load_file(Path(path) / "adapter_model.safetensors")
        first, second = (tuple(weight.shape) for weight in weights.values())
        rank = json.loads((Path(path) / "adapter_config.json").read_text())["r"]
        assert {first, second} == {(rank, 128), (config()["hidden_size"], rank)}


def test_without_adapters_nothing_is_asked_for(tmp_path: Path) -> None:
    assert asked_adapters(AdapterMode.NONE, tmp_path) == {}
    assert with_adapter(AdapterMode.NONE, 1, str(tmp_path)) == {}
    assert not list(tmp_path.iterdir())


def untrue(tokens: list[int], slots: list[int], ids: list[int | None]) -> list[str]:
    """Of a step with a token of each request."""
    says = Script(SCENARIO, draft_len=0)
    truth = Truth(says, [], penalties_of)
    asked = {"tokens": 1, "drafts": 0, "computed": 0, "known": 2, "blocks": []}
    chosen: dict[str, object] = {"asked": None, "requests": dict.fromkeys(NAMES, asked)}
    seen: dict[str, object] = {"rows": list(NAMES), "tokens": tokens, "slots": slots, "ids": ids}
    truth.read([(1, "scheduled", chosen), (1, "adapters", seen)])
    return [f"{one.what}: {one.used}, {one.true}" for one in truth.untrue]


def test_each_token_is_run_with_its_request_s_adapter() -> None:
    assert untrue([0, 1, 2, 0], [-1, 1, 0, -1], [2, 1]) == []
    assert untrue([0, 1, 2, 2], [-1, 1, 0, -1], [2, 1]) == [
        "adapters.tokens of request D in row 3, token 0: 2, 0"
    ]
    assert untrue([0, 1, 2, 0], [-1, 0, 0, -1], [2, 1]) == [
        "adapters.slots of request B in row 1, token 0: 0, 1"
    ]


def test_an_adapter_that_is_not_loaded_is_in_none_of_the_slots() -> None:
    (found,) = untrue([0, 1, 2, 0], [-1, 0, -1, -1], [1, None])
    assert found == "adapters.slots of request C in row 2, token 0: -1, 2"


class NotedWatch:
    """What is observed on the device, as it is noted: there is none."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, dict[str, object]]] = []

    def inner_on_device(self, name: str, tensors: dict[str, object], **known: object) -> None:
        self.noted.append((name, tensors | known))


@pytest.mark.parametrize("is_second", [False, True])
def test_what_a_runner_is_asked_for_is_observed(is_second: bool) -> None:  # noqa: FBT001
    """The second runner knows the rows of a step later, and says whose adapters it asks for."""
    watch: Any = NotedWatch()
    manager = SimpleNamespace(
        punica_wrapper_mapping={"model": SimpleNamespace(token_lora_indices="slots")},
        lora_index_to_id=[2, 1],
    )
    runner: Any = SimpleNamespace(
        lora_manager=SimpleNamespace(_adapter_manager=manager),
        _set_active_loras=lambda prompts, tokens, requests: None,
    )
    if is_second:
        runner.lora_state = SimpleNamespace(make_lora_inputs=lambda req_ids: None)
    watch_adapters(watch, runner, lambda: ["X", "Y"])
    if is_second:
        runner.lora_state.make_lora_inputs(["B-0123abcd", "A-0123abcd"])
    runner._set_active_loras((1, 0), (1, 0), [SimpleNamespace(lora_int_id=1)])
    rows = ["B", "A"] if is_second else ["X", "Y"]
    said = {"rows": rows, "tokens": [1, 0], "ids": [2, 1], "active": [1]}
    assert watch.noted == [("adapters", {"slots": "slots", **said})]


def test_what_adapters_change_is_not_asked_for() -> None:
    hits = msgspec.structs.replace(SCENARIO, expect=Expect(prefix_hits=1))
    assert CELL.cannot_run(hits) == (
        "it is about prefix_hits: who has another adapter shares no prefix"
    )
    full = msgspec.structs.replace(CELL, fidelity=Fidelity.FULL)
    assert full.cannot_run(SCENARIO) == "what an adapter adds is not computed: --fidelity hollow"
    assert CELL.cannot_run(SCENARIO) == ""
    assert " --adapters lora" in " ".join(CELL.command) and "lora" in CELL.settings
