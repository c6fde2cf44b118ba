"""How an engine is started, which scenarios it can express, and what its drafts' counters count."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bare_session import engine_session
from racegate.scenario.files import load_for
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.model import config
from racegate.targets.vllm.inside.watch import RunnerWatch, watch_scheduler
from racegate.targets.vllm.wire import DRAFTS_USUAL, LayerMode, ModelRunner, StateMode

SCRIPTS = Path(__file__).parents[3] / "scenarios" / "vllm"


def cell(*, drafts: int = DRAFTS_USUAL, layers: LayerMode = LayerMode.HYBRID) -> Cell:
    return Cell(
        release="1.0", runner=ModelRunner.V1, mode=StateMode.ALIGN, drafts=drafts, layers=layers
    )


@pytest.mark.parametrize(
    ("name", "drafts", "layers", "reason"),
    [
        ("rows_change_hands", 3, LayerMode.HYBRID, ""),
        ("rows_change_hands", 0, LayerMode.HYBRID, ""),
        ("rows_change_hands", 3, LayerMode.ATTENTION, ""),
        ("many_drafts", 7, LayerMode.HYBRID, ""),
        ("many_drafts", 0, LayerMode.HYBRID, "it is about drafts, and there are none"),
        ("chunked_prefill", 7, LayerMode.HYBRID, "no request of it accepts 7 drafts"),
        ("preemption_for_blocks", 3, LayerMode.HYBRID, ""),
        ("preemption_for_blocks", 7, LayerMode.HYBRID,
         "its pool has fewer blocks than 7 drafts need"),
        ("preemption_without_drafts", 0, LayerMode.HYBRID, ""),
        ("preemption_without_drafts", 3, LayerMode.HYBRID,
         "its pool has fewer blocks than 3 drafts need"),
        ("preemption_for_blocks", 3, LayerMode.ATTENTION,
         "its pool is counted for recurrent layers"),
        ("first_decode_in_moved_row", 3, LayerMode.ATTENTION,
         "rows are reordered and blocks zeroed for recurrent layers"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_refused_with_the_reason(
    name: str, drafts: int, layers: LayerMode, reason: str
) -> None:
    scenario = load_for("vLLM", SCRIPTS / f"{name}.toml")
    assert cell(drafts=drafts, layers=layers).cannot_run(scenario) == reason


def test_a_cell_says_how_it_is_started_where_that_is_not_usual() -> None:
    assert cell().settings == ("v1", "align")
    other = cell(drafts=0, layers=LayerMode.ATTENTION)
    assert other.settings == ("v1", "align", "drafts-0", "attention")
    assert other.command[-2:] == ("--drafts 0", "--layers attention")
    assert other.title == "vLLM 1.0 v1 align drafts-0 attention"


def test_the_model_has_the_layers_that_are_asked_for() -> None:
    assert config()["layer_types"] == ["linear_attention", "full_attention"]
    assert config(LayerMode.ATTENTION)["layer_types"] == ["full_attention"] * 2


@pytest.mark.parametrize(
    ("drafts", "tokens", "rejections", "full"),
    [(0, [7], 0, 0), (3, [7], 1, 0), (3, [7, 8, 9, 1], 0, 1), (3, [7, 8], 1, 0), (3, [], 0, 0)],
)
def test_only_a_row_with_drafts_can_have_some_rejected(
    drafts: int, tokens: list[int], rejections: int, full: int
) -> None:
    watch = RunnerWatch(engine_session())
    scheduler: Any = SimpleNamespace(update_from_output=lambda *_: "taken")
    watch_scheduler(watch, scheduler)
    scheduled = SimpleNamespace(
        scheduled_spec_decode_tokens={"A-00000000": [-1] * drafts} if drafts else {},
        racegate_step=1,
    )
    output = SimpleNamespace(req_id_to_index={"A-00000000": 0}, sampled_token_ids=[tokens])
    assert scheduler.update_from_output(scheduled, output) == "taken"
    assert watch.counters["rejections"] == rejections
    assert watch.counters["full_accepts"] == full
    assert watch.counters["discarded_rows"] == (not tokens)
