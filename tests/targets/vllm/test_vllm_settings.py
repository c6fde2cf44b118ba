"""How an engine is started, which scenarios it can express, and what its drafts' counters count."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from bare_session import engine_session
from racegate.cli.app import app
from racegate.history.exit_code import ExitCode
from racegate.interpose.outcome import Ending
from racegate.scenario.expect import Expect
from racegate.scenario.files import load_for
from racegate.targets.common.inside.fields import name_of
from racegate.targets.common.judge import unmet_expectations
from racegate.targets.common.wire import Fidelity, ReleaseRun
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.graphs import asked_graphs
from racegate.targets.vllm.inside.scripted.model import VOCAB, config, drafter_config, vocab_of
from racegate.targets.vllm.inside.scripted.scripts import fit_release
from racegate.targets.vllm.inside.scripted.speculation import drafts_by_batch
from racegate.targets.vllm.inside.scripted.windows import WINDOW_TOKENS
from racegate.targets.vllm.inside.standins import own_arguments
from racegate.targets.vllm.inside.watch import RunnerWatch, watch_scheduler
from racegate.targets.vllm.inside.watch_steps import watch_draws
from racegate.targets.vllm.unmodelled import refusal_of
from racegate.targets.vllm.wire import (
    DRAFTS_USUAL,
    CaptureMode,
    DraftSchedule,
    ImageMode,
    LayerMode,
    ModelRunner,
    PositionMode,
    PriorityMode,
    ProposerKind,
    SchedulingMode,
    StateMode,
    VocabularyMode,
    priority_of,
)

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
        ("many_drafts", 0, LayerMode.HYBRID,
         "it is about rejections: there are no drafts"),
        ("chunked_prefill", 0, LayerMode.HYBRID, ""),
        ("chunked_prefill", 7, LayerMode.HYBRID, ""),
        ("probabilistic_drafts", 3, LayerMode.HYBRID,
         "it needs drafts that are drawn: --draft-mode probabilistic"),
        ("first_decode_in_moved_row", 0, LayerMode.HYBRID,
         "what happens in it is timed by drafts, and there are none"),
        ("preemption_for_blocks", 3, LayerMode.HYBRID, ""),
        ("preemption_for_blocks", 7, LayerMode.HYBRID,
         "its pool has fewer blocks than 7 drafts need"),
        ("preemption_without_drafts", 0, LayerMode.HYBRID, ""),
        ("preemption_without_drafts", 3, LayerMode.HYBRID,
         "its pool has fewer blocks than 3 drafts need"),
        ("preemption_for_blocks", 3, LayerMode.ATTENTION,
         "its pool is counted for recurrent layers"),
        ("first_decode_in_moved_row", 3, LayerMode.ATTENTION, ""),
        ("host_prefix_hit", 3, LayerMode.HYBRID,
         "it needs a tier in the host's memory: --connector simple"),
    ],
)  # fmt: skip
def test_what_cannot_be_expressed_is_refused_with_the_reason(
    name: str, drafts: int, layers: LayerMode, reason: str
) -> None:
    scenario = load_for("vLLM", SCRIPTS / f"{name}.toml")
    assert cell(drafts=drafts, layers=layers).cannot_run(scenario) == reason


def test_ngrams_need_text_that_repeats() -> None:
    looked_up = msgspec.structs.replace(cell(), drafter=ProposerKind.NGRAM)
    assert looked_up.settings == ("v1", "align", "ngram")
    assert looked_up.command[-1] == "--drafter ngram"
    repeated = load_for("vLLM", SCRIPTS / "looked_up_drafts.toml")
    assert looked_up.impossible(repeated) == {} and looked_up.cannot_run(repeated) == ""
    other = load_for("vLLM", SCRIPTS / "chunked_prefill.toml")
    assert set(looked_up.impossible(other)) == {"rejections", "full_accepts"}
    assert looked_up.cannot_run(other) == ""
    timed = load_for("vLLM", SCRIPTS / "first_decode_in_moved_row.toml")
    assert "timed by drafts" in looked_up.cannot_run(timed)


def test_graphs_are_asked_for_where_they_are_expected() -> None:
    scenario = load_for("vLLM", SCRIPTS / "rows_change_hands.toml")
    replayed = msgspec.structs.replace(scenario, expect=Expect(graph_replays=1, padded_rows=1))
    assert "--graphs full" in cell().cannot_run(replayed)
    captured = msgspec.structs.replace(cell(), graphs=CaptureMode.FULL)
    assert captured.cannot_run(replayed) == "" and captured.settings[-1] == "graphs-full"
    pieces = msgspec.structs.replace(cell(), graphs=CaptureMode.PIECEWISE)
    assert pieces.cannot_run(scenario) == ""
    second = msgspec.structs.replace(pieces, runner=ModelRunner.V2)
    assert "--drafts 0" in second.cannot_run(scenario)
    assert msgspec.structs.replace(second, drafts=0).cannot_run(scenario) == ""
    assert asked_graphs(CaptureMode.NONE, 3) == {}
    assert asked_graphs(CaptureMode.FULL, 3)["cudagraph_mode"] == "FULL_DECODE_ONLY"


def test_images_need_positions_of_three_numbers() -> None:
    scenario = load_for("vLLM", SCRIPTS / "image_positions.toml")
    assert cell().cannot_run(scenario) == "it has images: --positions mrope"
    other = msgspec.structs.replace(cell(), positions=PositionMode.MROPE)
    assert other.cannot_run(scenario) == "" and other.settings[-1] == "mrope"
    second = msgspec.structs.replace(other, runner=ModelRunner.V2)
    assert "--drafts 0" in second.cannot_run(scenario)
    assert msgspec.structs.replace(second, drafts=0).cannot_run(scenario) == ""
    asked = config(positions=PositionMode.MROPE)
    assert asked["rope_parameters"]["mrope_section"] and "rope_parameters" not in config()


def test_images_that_are_encoded_need_no_positions_of_their_own() -> None:
    scenario = load_for("vLLM", SCRIPTS / "encoded_images.toml")
    assert "--images encoded" in cell().cannot_run(scenario)
    first = msgspec.structs.replace(cell(), images=ImageMode.ENCODED)
    assert first.cannot_run(scenario) == "" and first.settings[-1] == "images-encoded"
    second = msgspec.structs.replace(first, runner=ModelRunner.V2)
    assert second.cannot_run(scenario) == ""
    dimensions = msgspec.structs.replace(second, positions=PositionMode.MROPE)
    assert "--drafts 0" in dimensions.cannot_run(scenario)


def test_what_has_one_step_in_flight_is_not_asked_to_overlap() -> None:
    waits = msgspec.structs.replace(cell(), scheduling=SchedulingMode.SYNC)
    assert waits.settings[-1] == "sync" and waits.command[-1] == "--scheduling sync"
    overlaps = load_for("vLLM", SCRIPTS / "steps_in_flight.toml")
    asked = msgspec.structs.replace(overlaps, expect=Expect(overlapped_ops=1, rejections=1))
    assert set(waits.impossible(asked)) == {"overlapped_ops"}
    assert "no two steps" in waits.cannot_run(
        msgspec.structs.replace(overlaps, expect=Expect(overlapped_ops=1))
    )


def test_large_batches_have_fewer_drafts_where_that_is_asked_for() -> None:
    fewer = msgspec.structs.replace(cell(), draft_schedule=DraftSchedule.BY_BATCH)
    assert fewer.command[-1] == "--draft-schedule by-batch"
    scenario = load_for("vLLM", SCRIPTS / "structured_output.toml")
    assert set(fewer.impossible(scenario)) == {"rejections"}
    assert drafts_by_batch(3) == [(1, 1, 3), (2, 3, 2), (4, 4, 1)]
    assert all(count for _, _, count in drafts_by_batch(1))


def test_a_cell_says_how_it_is_started_where_that_is_not_usual() -> None:
    assert cell().settings == ("v1", "align")
    other = cell(drafts=0, layers=LayerMode.ATTENTION)
    assert other.settings == ("v1", "align", "drafts-0", "attention")
    assert other.command[-2:] == ("--drafts 0", "--layers attention")
    assert other.title == "vLLM 1.0 v1 align drafts-0 attention"


def test_states_of_mamba2_are_as_large_as_the_others_and_not_computed() -> None:
    """So that pools that are counted in blocks stay what scenarios ask for."""
    other, usual = config(LayerMode.MAMBA2), config()
    heads, size = other["mamba_num_heads"], other["mamba_head_dim"]
    assert heads == usual["linear_num_value_heads"] and size == usual["linear_value_head_dim"]
    assert other["ssm_state_size"] == usual["linear_key_head_dim"]
    assert other["conv_kernel"] == usual["linear_conv_kernel_dim"]
    recurrent = {LayerMode.HYBRID, LayerMode.GROUPS, LayerMode.MAMBA2}
    assert {mode for mode in LayerMode if mode.is_recurrent} == recurrent
    asked = cell(layers=LayerMode.MAMBA2)
    assert asked.settings == ("v1", "align", "mamba2")
    scenario = load_for("vLLM", SCRIPTS / "preemption_for_blocks.toml")
    assert asked.cannot_run(scenario) == ""
    full = msgspec.structs.replace(asked, fidelity=Fidelity.FULL)
    assert full.cannot_run(scenario) == "layers of Mamba2 are not computed: --fidelity hollow"


def test_prefills_that_wait_are_a_setting_and_windows_are_of_attention() -> None:
    waits = msgspec.structs.replace(cell(layers=LayerMode.WINDOWS), throttle=3)
    assert waits.settings == ("v1", "align", "windows", "throttle-3")
    assert waits.command[-2:] == ("--layers windows", "--throttle 3")
    urgent = msgspec.structs.replace(cell(), priorities=PriorityMode.NEWEST)
    assert urgent.command[-1] == "--priorities newest"
    first, second = (priority_of(index, urgent.priorities)["priority"] for index in (0, 1))
    assert second < first and priority_of(1, PriorityMode.NONE) == {}
    scenario = load_for("vLLM", SCRIPTS / "preemption_for_blocks.toml")
    assert "recurrent layers" in waits.cannot_run(scenario)
    asked = config(LayerMode.WINDOWS)
    assert asked["rswa_window"] == WINDOW_TOKENS and "rswa_window" not in config()
    assert asked["layer_types"] == config(LayerMode.ATTENTION)["layer_types"]


def test_a_wide_vocabulary_is_of_the_model_and_of_its_drafter() -> None:
    wide = msgspec.structs.replace(cell(), vocabulary=VocabularyMode.WIDE)
    assert wide.settings == ("v1", "align", "vocabulary-wide")
    assert wide.command[-1] == "--vocabulary wide"
    tokens = config(vocabulary=VocabularyMode.WIDE)["vocab_size"]
    assert tokens > 8192 > VOCAB == config()["vocab_size"]
    assert VOCAB % 32 and tokens % 32  # masks end inside a word
    assert drafter_config(VocabularyMode.WIDE)["vocab_size"] == tokens
    assert [vocab_of(one) for one in (VocabularyMode.WIDE, VocabularyMode.USUAL)] == [tokens, VOCAB]


def test_what_a_runner_never_does_is_not_asked_of_it() -> None:
    scenario = load_for("vLLM", SCRIPTS / "finish_and_condense.toml")
    assert cell().impossible(scenario) == {}
    second = msgspec.structs.replace(cell(), runner=ModelRunner.V2)
    assert list(second.impossible(scenario)) == ["condense_moves"]
    assert second.cannot_run(scenario) == ""
    told = ReleaseRun(ending=Ending.FINISHED, counters={"rejections": 9, "full_accepts": 9})
    assert unmet_expectations(second, scenario, told) == ()
    (unmet,) = unmet_expectations(cell(), scenario, told)
    assert unmet.startswith("condense_moves")
    nothing = ReleaseRun(ending=Ending.FINISHED)
    assert len(unmet_expectations(second, scenario, nothing)) == 2
    assert set(cell(drafts=0).impossible(scenario)) == {"rejections", "full_accepts"}


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
    watch.step = 2
    taken: dict[int, Any] = {}
    scheduler: Any = SimpleNamespace(update_from_output=lambda *_: taken)
    watch_scheduler(watch, scheduler)
    scheduled = SimpleNamespace(
        scheduled_spec_decode_tokens={"A-00000000": [-1] * drafts} if drafts else {},
        racegate_step=1,
    )
    output = SimpleNamespace(req_id_to_index={"A-00000000": 0}, sampled_token_ids=[tokens])
    assert scheduler.update_from_output(scheduled, output) is taken
    assert watch.counters["rejections"] == rejections
    assert watch.counters["full_accepts"] == full
    assert watch.counters["discarded_rows"] == (not tokens)
    assert watch.counters["overlapped_ops"] == 1  # the next step had begun


@pytest.mark.parametrize(("made", "count"), [(("tokens", "weights"), 1), (("tokens", None), 0)])
def test_drafts_are_drawn_where_they_have_weights(made: tuple[Any, Any], count: int) -> None:
    watch = RunnerWatch(engine_session())
    watch.begin(drawn=frozenset("A"))
    first: Any = SimpleNamespace(_sample_draft_tokens=lambda hidden: made)
    watch_draws(watch, first, lambda: ["A", "B"])
    assert first._sample_draft_tokens("hidden") == made
    assert watch.counters["drawn_drafts"] == count
    second: Any = SimpleNamespace(sample_draft=lambda hidden, draft_logits: hidden)
    watch_draws(watch, second, lambda: ["A", "B"])
    second.sample_draft("hidden", draft_logits=made[1])
    assert watch.counters["drawn_drafts"] == 2 * count


@pytest.mark.parametrize(
    ("argument", "said"),
    [
        ("enable_lora=true", "adapters are asked for by --adapters lora"),
        ("enable_sleep_mode=true", "memory that a sleeping engine gives up is not judged"),
        ('runner="pooling"', "pooling is not judged"),
        ('convert="embed"', "pooling is not judged"),
        ('model="state-spaces/mamba-130m"', "Mamba2 and attention (--layers): others are not"),
        ('limit_mm_per_prompt={"image": 1}', "processors of pictures"),
        ("tensor_parallel_size=2", "one rank is run"),
    ],
)
def test_what_is_not_judged_is_refused_before_anything_starts(argument: str, said: str) -> None:
    asked = ["vllm", "gate", "--release", "0.33.0", "--engine-arg", argument]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == ExitCode.BAD_INPUT
    assert f"--engine-arg {argument.partition('=')[0]}: " in done.output
    assert said in " ".join(done.output.split())


def test_what_asks_for_nothing_is_not_refused() -> None:
    plain = ("enable_lora=false", "tensor_parallel_size=1", 'runner="auto"', "block_size=32")
    assert refusal_of(plain) == ""


def test_arguments_of_the_engine_are_the_release_s_own() -> None:
    other = msgspec.structs.replace(
        cell(), arguments=("prefill_schedule_interval=2", 'kv_transfer_config={"kv_role": "both"}')
    )
    assert other.settings[2:] == (
        "prefill_schedule_interval-2", "kv_transfer_config-kv_role-both",
    )  # fmt: skip
    assert other.command[-2:] == (
        "--engine-arg prefill_schedule_interval=2",
        """--engine-arg 'kv_transfer_config={"kv_role": "both"}'""",
    )
    known = ("prefill_schedule_interval", "kv_transfer_config")
    assert own_arguments(other.arguments, known) == {
        "prefill_schedule_interval": 2, "kv_transfer_config": {"kv_role": "both"},
    }  # fmt: skip
    for text, said in (("interval=2", "have no 'interval'"), (f"{known[0]}=two", "is no JSON")):
        with pytest.raises(RuntimeError, match=said):
            own_arguments([text], known)


def test_a_request_has_the_same_identity_in_every_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """vLLM 0.25.1's second runner frees slots in the order of a set of them."""
    processor: Any = ModuleType("vllm.v1.engine.input_processor")
    processor.random_uuid = lambda: "0123456789abcdef"
    for path in ("vllm", "vllm.v1", "vllm.v1.engine"):
        monkeypatch.setitem(sys.modules, path, ModuleType(path))
    monkeypatch.setitem(sys.modules, processor.__name__, processor)
    fit_release(Cell(release="1", runner=ModelRunner.V1, mode=StateMode.NONE))
    named = f"A-{processor.random_uuid():.8}"
    assert (named, name_of(named)) == ("A-00000000", "A")


def test_an_older_release_adds_nothing_to_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm.v1.engine.input_processor", None)
    fit_release(Cell(release="1", runner=ModelRunner.V1, mode=StateMode.NONE))
