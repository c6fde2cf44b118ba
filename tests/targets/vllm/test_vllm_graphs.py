"""Graphs that are replayed: what is counted and observed, and what is captured of our own work."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from racegate.scenario.spec import Image
from racegate.targets.vllm.inside.absent import AbsentObject, AbsentPackage
from racegate.targets.vllm.inside.graphs import SIZES, asked_graphs, watch_replays
from racegate.targets.vllm.inside.scripted.coordinates import coordinates, shift_of
from racegate.targets.vllm.wire import CaptureMode


class Counted:
    """A hollow model: how often its forward pass ran, and what was observed."""

    def __init__(self) -> None:
        self.forwards = 0
        self.seen: list[tuple[str, Any, Any]] = []

    def observe(self, name: str, input_ids: Any, positions: Any, hidden: Any = None) -> None:
        self.seen.append((name, list(input_ids), list(positions)))


class Batch(list[int]):
    """Tokens that have a shape, as a tensor has."""

    @property
    def shape(self) -> tuple[int]:
        return (len(self),)

    def __getitem__(self, at: Any) -> Any:
        return Batch(super().__getitem__(at)) if isinstance(at, slice) else super().__getitem__(at)


def watch(tokens: int) -> Any:
    return SimpleNamespace(counters={"graph_replays": 0, "padded_rows": 0}, tokens=tokens)


@pytest.mark.parametrize(("runs", "replays"), [(1, 0), (0, 1)])
def test_a_step_of_the_first_runner_is_a_replay_if_no_forward_pass_ran(
    runs: int, replays: int
) -> None:
    hollow: Any = Counted()
    seen = watch(3)
    read: list[dict[str, torch.Tensor]] = []

    def forward(input_ids: Any, positions: Any) -> str:
        hollow.forwards += runs
        return "hidden"

    table = SimpleNamespace(slot_mapping=SimpleNamespace(gpu=torch.tensor([40, 41, 42, -1, 99])))
    runner: Any = SimpleNamespace(
        _model_forward=forward,
        input_batch=SimpleNamespace(block_table=SimpleNamespace(block_tables=[table])),
        seq_lens=torch.tensor([5, 0]),
        query_start_loc=torch.tensor([0, 3, 3]),
    )
    seen.inner_on_device = lambda name, tensors: read.append(tensors)
    watch_replays(seen, runner, hollow)
    given = Batch([7, 8, 9, 0])
    assert runner._model_forward(input_ids=given, positions=Batch([1, 2, 3, 0])) == "hidden"
    assert seen.counters == {"graph_replays": replays, "padded_rows": replays}
    assert hollow.seen == [("inputs of the model", [7, 8, 9, 0], [1, 2, 3, 0])] * replays
    assert [each["slots 0"].tolist() for each in read] == [[40, 41, 42, -1]] * replays


def test_what_the_first_runners_drafter_is_given_is_observed_where_it_is_replayed() -> None:
    hollow: Any = Counted()
    given = {"input_ids": Batch([7, 8]), "positions": Batch([1, 2]), "hidden_states": "hidden"}
    pieces = SimpleNamespace(_replay=lambda entry, args, kwargs: "replayed")
    runner: Any = SimpleNamespace(
        _model_forward=lambda **kwargs: "hidden", drafter=SimpleNamespace(model=pieces)
    )
    watch_replays(watch(3), runner, hollow)
    assert pieces._replay("entry", (), given) == "replayed"
    assert hollow.seen == [("inputs of the drafter", [7, 8], [1, 2])]


def test_the_second_runner_replays_what_its_buffers_hold() -> None:
    """And what pads it: attention writes where the slots of all of its tokens say."""
    hollow: Any = Counted()
    seen = watch(3)
    given: list[tuple[str, Any]] = []
    seen.inner_on_device = lambda name, tensors: given.append((name, tensors))
    lengths = torch.tensor([5, 0, 9, 9])
    buffers = SimpleNamespace(
        input_ids=Batch(range(8)),
        positions=Batch(range(8)),
        seq_lens=lengths,
        query_start_loc=torch.tensor([0, 3, 3, 9, 9]),
    )
    slots = torch.tensor([[40, 41, 42, -1, 99]])
    manager = SimpleNamespace(run_fullgraph=lambda desc: "hidden", run_pw_graph=None)
    drafts = SimpleNamespace(run_fullgraph=lambda desc: "drafts")
    runner: Any = SimpleNamespace(
        cudagraph_manager=manager,
        input_buffers=buffers,
        block_tables=SimpleNamespace(
            slot_mappings=slots, input_block_tables=[torch.tensor([[3, 4], [0, 0], [7, 0]])]
        ),
        speculator=SimpleNamespace(
            prefill_cudagraph_manager=drafts,
            input_buffers=buffers,
            idx_mapping=torch.tensor([2, -1, 1]),
        ),
    )
    watch_replays(seen, runner, hollow)
    assert manager.run_fullgraph(SimpleNamespace(num_tokens=4, num_reqs=2)) == "hidden"
    assert drafts.run_fullgraph(SimpleNamespace(num_tokens=2, num_reqs=2)) == "drafts"
    (name, read), other = given
    assert name == "padded graph"
    assert other[0] == "padded graph of the drafter" and other[1]["places"].tolist() == [2, -1]
    assert {key: value.tolist() for key, value in read.items() if len(value)} == {
        "slots 0": [40, 41, 42, -1], "seq_lens": [5, 0], "query_start": [0, 3, 3],
        "blocks 0": [[3, 4], [0, 0]],
    }  # fmt: skip
    assert seen.counters == {"graph_replays": 1, "padded_rows": 1}
    assert [name for name, *_ in hollow.seen] == ["inputs of the model", "inputs of the drafter"]
    assert [tokens for _, tokens, _ in hollow.seen] == [[0, 1, 2, 3], [0, 1]]


def test_nothing_is_compiled_whatever_is_captured() -> None:
    for mode, name in (
        (CaptureMode.FULL, "FULL_DECODE_ONLY"),
        (CaptureMode.PIECEWISE, "PIECEWISE"),
    ):
        asked = asked_graphs(mode, 3)
        assert (asked["mode"], asked["cudagraph_mode"]) == (0, name)
        assert asked["cudagraph_capture_sizes"] == list(SIZES)
    few = asked_graphs(CaptureMode.FEW, 3)
    assert few["cudagraph_mode"] == "FULL_DECODE_ONLY"
    assert few["cudagraph_capture_sizes"] == [4, 12]  # of one row and of three, not of two or four
    assert asked_graphs(CaptureMode.FEW, 0)["max_cudagraph_capture_size"] == 3


def test_what_is_not_installed_can_be_named_but_not_called() -> None:
    package = AbsentPackage("pictures")
    assert package.find_spec("other.pictures", None) is None
    spec = package.find_spec("pictures.transforms", None)
    assert spec is not None and spec.loader is package
    module: Any = SimpleNamespace(__name__="pictures.transforms")
    package.exec_module(module)
    made = module.__getattr__("Resize")
    assert isinstance(made.bilinear, AbsentObject)
    with pytest.raises(RuntimeError, match=r"pictures.transforms.Resize.bilinear was called"):
        made.bilinear()
    with pytest.raises(AttributeError):
        module.__getattr__("__path__")


def test_text_behind_an_image_stands_behind_its_longest_side() -> None:
    images = (Image(start=1, grid=(1, 2, 3)),)
    expected = [(0, 0, 0), (1, 1, 1), (1, 1, 2), (1, 1, 3), (1, 2, 1), (1, 2, 2), (1, 2, 3)]
    expected += [(4, 4, 4), (5, 5, 5)]
    assert coordinates(images, 9) == expected
    assert coordinates(images, 4) == expected[:4] and coordinates((), 2) == [(0,) * 3, (1,) * 3]
    assert shift_of(images) == 3 and 8 - shift_of(images) == expected[8][0]
