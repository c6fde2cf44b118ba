"""What layers are told of a step beside rows and slots: how many rows and tokens of each kind there
are, where their tokens begin, and which of them go on from a state.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch

from racegate.targets.common.inside.session import Tensor
from racegate.targets.vllm.inside.watch import RunnerWatch

_BUILDERS = (
    ("vllm.v1.attention.backends.gdn_attn", "GDNAttentionMetadataBuilder"),
    ("vllm.v1.attention.backends.triton_attn", "TritonAttentionMetadataBuilder"),
)
_COUNTS = (
    "num_prefills", "num_prefill_tokens", "num_decodes", "num_decode_tokens", "num_spec_decodes",
    "num_spec_decode_tokens", "num_actual_tokens", "max_query_len", "max_seq_len",
)  # fmt: skip
# By field, how many of its values are somebody's: the sum of these counts, and so many more.
_OWNED = {
    "spec_query_start_loc": (("num_spec_decodes",), 1),
    "non_spec_query_start_loc": (("num_prefills", "num_decodes"), 1),
    "has_initial_state": (("num_prefills", "num_decodes"), 0),
    "spec_token_indx": (("num_spec_decode_tokens",), 0),
    "non_spec_token_indx": (("num_prefill_tokens", "num_decode_tokens"), 0),
    "prefill_query_start_loc": (("num_prefills",), 1),
    "prefill_state_indices": (("num_prefills",), 0),
    "prefill_has_initial_state": (("num_prefills",), 0),
}


def watch_layers(watch: RunnerWatch, rows: Callable[[], list[str]]) -> None:
    """The metadata of recurrent layers and of attention layers. rows: names of the batch's
    requests, none while the engine starts
    """
    for path, name in _BUILDERS:
        _watch_builder(watch, rows, getattr(import_module(path), name))


def _watch_builder(watch: RunnerWatch, rows: Callable[[], list[str]], builder: Any) -> None:
    plain = builder.build

    def build(*args: Any, **kwargs: Any) -> Any:
        made = plain(*args, **kwargs)
        names = rows()
        if names:
            counts = {name: int(vars(made)[name]) for name in _COUNTS if name in vars(made)}
            tensors = owned(made, counts)
            lengths = {field: len(getattr(made, field)) for field in tensors}  # padding and all
            watch.inner_on_device("layers", tensors, rows=names, lengths=lengths, **counts)
        return made

    builder.build = build


def owned(made: Any, counts: dict[str, int]) -> dict[str, Tensor]:
    """Tensors on the device without what pads them. made: metadata; counts: of it, by name"""
    found: dict[str, Tensor] = {}
    for field, (of, more) in _OWNED.items():
        tensor = getattr(made, field, None)
        if isinstance(tensor, torch.Tensor) and tensor.is_cuda:
            found[field] = tensor[: sum(counts[name] for name in of) + more]
    return found
