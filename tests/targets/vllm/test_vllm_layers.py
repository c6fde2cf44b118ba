"""What layers are told of a step, without what pads it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from racegate.targets.vllm.inside.layers import OWNED, owned, told_by, watch_layers
from racegate.targets.vllm.inside.watch import STATES, watch_metadata

GDN = "vllm.v1.attention.backends.gdn_attn"
MAMBA2 = "vllm.v1.attention.backends.mamba2_attn"
TRITON = "vllm.v1.attention.backends.triton_attn"


class Notes:
    """A watch that keeps what it is shown."""

    def __init__(self) -> None:
        self.inner: list[tuple[str, dict[str, Any], dict[str, object]]] = []

    def inner_on_device(self, name: str, tensors: dict[str, Any], **known: object) -> None:
        self.inner.append((name, tensors, known))

    def on_host_now(self, tensors: dict[str, Any]) -> dict[str, object]:
        return {name: tensor.tolist() for name, tensor in tensors.items()}


class Metadata:
    """Of two prefills and one row with drafts; what is behind is nobody's."""

    def __init__(self, **changed: object) -> None:
        vars(self).update(num_prefills=2, num_decodes=0, num_spec_decodes=1, max_query_len=9)
        vars(self).update(num_prefill_tokens=11, num_decode_tokens=0, num_spec_decode_tokens=4)
        vars(self).update(changed)


class CommonAttentionMetadata:
    """Has the name of the release's own class."""


def test_tensors_are_cut_to_what_is_somebodys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: tensor.device is not None))
    made = Metadata(
        spec_query_start_loc=torch.tensor([0, 4, 99]),
        has_initial_state=torch.tensor([True, False, True]),
        spec_token_indx=None,
        num_accepted_tokens=torch.tensor([3, 1, 2]),
    )
    found = owned(made, OWNED[GDN, "GDNAttentionMetadataBuilder"], vars(made))
    kept = {name: tensor.tolist() for name, tensor in found.items()}
    states = {"has_initial_state": [True, False], "num_accepted_tokens": [3]}
    assert kept == {"spec_query_start_loc": [0, 4], **states}


def test_of_mamba2_decodes_and_prefills_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda tensor: tensor.device is not None))
    made = Metadata(
        num_prefills=1,
        num_decodes=2,
        query_start_loc_d=torch.tensor([0, 4, 8, 99]),
        num_accepted_tokens=torch.tensor([2, 1, 99]),
        has_initial_states_p=torch.tensor([True]),
        cu_chunk_seqlen_p=torch.tensor([0, 16, 21]),
    )
    found = owned(made, OWNED[MAMBA2, "Mamba2AttentionMetadataBuilder"], vars(made))
    assert {name: tensor.tolist() for name, tensor in found.items()} == {
        "query_start_loc_d": [0, 4, 8],
        "num_accepted_tokens": [2, 1],
        "has_initial_states_p": [True],
        "cu_chunk_seqlen_p": [0, 16, 21],
    }


@pytest.mark.parametrize(("rows", "seen"), [(["A"], 1), ([], 0)])
def test_counts_are_told_while_requests_are_served(
    monkeypatch: pytest.MonkeyPatch, rows: list[str], seen: int
) -> None:
    """While the engine starts, builders make metadata of nobody."""

    def build(given: CommonAttentionMetadata) -> Metadata:
        return Metadata(max_query_len=7, seq_lens=vars(given)["lengths"])

    for path in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backends"):
        monkeypatch.setitem(sys.modules, path, ModuleType(path))
    for path, name in OWNED:
        module: Any = ModuleType(path)
        builder = SimpleNamespace(build=build)
        setattr(module, name, builder)
        monkeypatch.setitem(sys.modules, path, module)
    watch: Any = Notes()
    watch_layers(watch, lambda: rows)
    given = CommonAttentionMetadata()
    vars(given).update(lengths=torch.tensor([4, 9]), far=torch.zeros(2, 3), is_last=True)
    made = sys.modules[TRITON].TritonAttentionMetadataBuilder.build(given)  # type: ignore[attr-defined]
    assert made.max_query_len == 7 and len(watch.inner) == seen
    for name, tensors, known in watch.inner:
        assert (name, tensors, known["rows"], known["max_query_len"]) == ("layers", {}, rows, 7)
        assert known["sizes of seq_lens"] == [2] and known["seq_lens"] == [4, 9]
        assert known["given sizes of far"] == [2, 3] and "given far" not in known
        assert known["given is_last"] is True


@pytest.mark.parametrize("drafted", [1, None])
def test_slots_of_a_later_group_of_states_are_seen(
    monkeypatch: pytest.MonkeyPatch, drafted: int | None
) -> None:
    """Its metadata is that of the first group, with other slots. None: of a builder that has no
    counts of rows with drafts
    """

    def update(builder: object, metadata: SimpleNamespace) -> SimpleNamespace:
        return metadata

    for path in ("vllm", "vllm.v1", "vllm.v1.attention", "vllm.v1.attention.backends"):
        monkeypatch.setitem(sys.modules, path, ModuleType(path))
    for path, name in STATES:
        module: Any = ModuleType(path)
        setattr(module, name, SimpleNamespace(build=update, update_block_table=update))
        monkeypatch.setitem(sys.modules, path, module)
    watch: Any = Notes()
    watch.group_of = lambda builder: {"group": builder}
    watch_metadata(watch, lambda: ["A", "B"])
    builder: Any = sys.modules[GDN].GDNAttentionMetadataBuilder  # type: ignore[attr-defined]
    slots = {"spec_state_indices_tensor": torch.tensor([[3, 4], [9, 9]])}
    given = SimpleNamespace(**slots, non_spec_state_indices_tensor=torch.tensor([5, 9]))
    if drafted is not None:
        given.num_spec_decodes = drafted
    assert builder.update_block_table(2, given) is given
    if drafted is None:
        assert watch.inner == []
        return
    ((name, tensors, known),) = watch.inner
    assert (name, known) == ("metadata of a later group", {"rows": ["A", "B"], "group": 2})
    kept = {field: tensor.tolist() for field, tensor in tensors.items()}
    assert kept == {
        "spec_state_indices_tensor": [[3, 4]],
        "non_spec_state_indices_tensor": [5],
    }


@dataclass
class Checkpoint:
    offsets: list[int]
    rows: torch.Tensor
    names: list[list[int]]


def test_of_records_in_metadata_numbers_and_sizes_are_told() -> None:
    watch: Any = Notes()
    record = Checkpoint(offsets=[0, 80], rows=torch.zeros((2, 3)), names=[[1]])
    told = told_by(watch, Metadata(checkpoint=record, tables=list(range(65))))
    assert told["checkpoint.offsets"] == [0, 80]
    assert told["checkpoint.sizes of rows"] == [2, 3]
    assert "checkpoint.names" not in told and "tables" not in told
