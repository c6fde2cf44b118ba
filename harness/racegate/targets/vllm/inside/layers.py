"""What layers are told of a step beside rows and slots: how many rows and tokens of each kind there
are, where their tokens begin, and which of them go on from a state; of everything else that they
are told, and that this is made of, the numbers and the sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from typing import Any

import torch

from racegate.targets.common.inside.session import Tensor
from racegate.targets.common.inside.watch import Values
from racegate.targets.vllm.inside.watch import GATED_DELTA, MAMBA2, RunnerWatch

_COUNTS = (
    "num_prefills", "num_prefill_tokens", "num_decodes", "num_decode_tokens", "num_spec_decodes",
    "num_spec_decode_tokens", "num_actual_tokens", "max_query_len", "max_seq_len",
)  # fmt: skip
_GIVEN = "CommonAttentionMetadata"  # what metadata of all kinds are made of
_NUMBERS = (int, float, str, type(None))  # bool is an int
_SHORT = 64  # values
# By field, how many of its values are somebody's: the sum of these counts, and so many more; None:
# all of them.
Owned = Mapping[str, tuple[tuple[str, ...], int] | None]
_OF_GATED_DELTA: Owned = {
    "spec_query_start_loc": (("num_spec_decodes",), 1),
    "non_spec_query_start_loc": (("num_prefills", "num_decodes"), 1),
    "has_initial_state": (("num_prefills", "num_decodes"), 0),
    "num_accepted_tokens": (("num_spec_decodes",), 0),
    "spec_token_indx": (("num_spec_decode_tokens",), 0),
    "non_spec_token_indx": (("num_prefill_tokens", "num_decode_tokens"), 0),
    "prefill_query_start_loc": (("num_prefills",), 1),
    "prefill_state_indices": (("num_prefills",), 0),
    "prefill_has_initial_state": (("num_prefills",), 0),
}
_OF_MAMBA2: Owned = {
    "query_start_loc_d": (("num_decodes",), 1),
    "num_accepted_tokens": (("num_decodes",), 0),
    "query_start_loc_p": (("num_prefills",), 1),
    "has_initial_states_p": (("num_prefills",), 0),
    "last_chunk_indices_p": (("num_prefills",), 0),
    "seq_idx_p": None,
    "cu_chunk_seqlen_p": None,
    "checkpoint_chunk_idx": None,
}
# What makes metadata: the module and its class.
OWNED: dict[tuple[str, str], Owned] = {
    GATED_DELTA: _OF_GATED_DELTA,
    MAMBA2: _OF_MAMBA2,
    ("vllm.v1.attention.backends.triton_attn", "TritonAttentionMetadataBuilder"): {},
}


def watch_layers(watch: RunnerWatch, rows: Callable[[], list[str]]) -> None:
    """The metadata of recurrent layers and of attention layers. rows: names of the batch's
    requests, none while the engine starts
    """
    for (path, name), owners in OWNED.items():
        _watch_builder(watch, rows, getattr(import_module(path), name), owners)


def _watch_builder(
    watch: RunnerWatch, rows: Callable[[], list[str]], builder: Any, owners: Owned
) -> None:
    plain = builder.build

    def build(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        names = rows()
        if names:
            counts = {name: int(vars(made)[name]) for name in _COUNTS if name in vars(made)}
            known = told_by(watch, made) | counts | {"rows": names}
            for each in (*args, *kwargs.values()):
                if type(each).__name__ == _GIVEN:
                    known |= {f"given {name}": one for name, one in told_by(watch, each).items()}
            watch.inner_on_device("layers", owned(made, owners, counts), **known)
        return made

    builder.build = build


def told_by(watch: RunnerWatch, metadata: Any) -> Values:
    """By field: numbers and lists of them, sizes of what is on the device, padding and all, and
    short tensors of the host; of records in it, likewise. No property is asked, which might wait
    for the device.
    """
    found = vars(metadata)
    tensors = {name: each for name, each in found.items() if isinstance(each, torch.Tensor)}
    on_host = {
        name: each
        for name, each in tensors.items()
        if not each.is_cuda and each.numel() <= _SHORT and not each.is_floating_point()
    }
    told: Values = {name: each for name, each in found.items() if _is_told(each)}
    records = {name: each for name, each in found.items() if is_dataclass(type(each))}
    for name, record in records.items():
        told |= {f"{name}.{field}": each for field, each in told_by(watch, record).items()}
    told |= {f"sizes of {name}": list(each.shape) for name, each in tensors.items()}
    return told | watch.on_host_now(on_host)


def _is_told(each: Any) -> bool:
    """Numbers, and short lists of them."""
    is_list = isinstance(each, list) and len(each) <= _SHORT
    return isinstance(each, _NUMBERS) or (is_list and all(isinstance(n, _NUMBERS) for n in each))


def owned(made: Any, owners: Owned, counts: dict[str, int]) -> dict[str, Tensor]:
    """Tensors on the device without what pads them. made: metadata; owners: of its fields

    counts: of it, by name
    """
    found: dict[str, Tensor] = {}
    for field, owner in owners.items():
        tensor = getattr(made, field, None)
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            end = None if owner is None else sum(counts[name] for name in owner[0]) + owner[1]
            found[field] = tensor[:end]
    return found
