"""What vLLM's samplers use of each row: temperature, seed, penalties, and the logits that they and
masks have made, beside the drafts that are verified.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from importlib import import_module
from itertools import accumulate
from typing import Any

import torch

from racegate.targets.common.inside.fields import name_of
from racegate.targets.common.inside.session import Tensor
from racegate.targets.common.inside.watch import Look
from racegate.targets.vllm.inside.watch import RunnerWatch

# Of the first runner's metadata, by row; those behind the first three are used with penalties only.
_BY_ROW = ("temperature", "top_p", "top_k")
_PENALTIES = ("presence_penalties", "frequency_penalties", "repetition_penalties")
_SECOND_PENALTIES = {name: name.replace("penalties", "penalty") for name in _PENALTIES}
_FIRST = "vllm.v1.sample.sampler"
_FIRST_VERIFIES = "vllm.v1.sample.rejection_sampler"
_SECOND = "vllm.v1.worker.gpu.sample.sampler"
_SECOND_VERIFIES = "vllm.v1.worker.gpu.spec_decode.rejection_sampler"
_FILTERS = "vllm.v1.sample.ops.topk_topp_sampler"
_NEW_KERNEL = "has_topp_only_rows"  # what a kernel is told that was tried
_FILTERED = "filtered_by_kernel"
_DECIMALS = 2  # of a sum of logits: what a cleaner way to the same value changes is less


def watch_sampling(watch: RunnerWatch, rows: Callable[[], list[str]]) -> None:
    """Both runners' samplers, as far as a release has them. rows: names of the batch's requests"""
    places = (
        (_FIRST, "Sampler.forward", _see_parameters),
        (_FIRST, "Sampler.sample", _see_logits),
        (_FIRST, "apply_all_penalties", _see_tokens),
        (_FIRST_VERIFIES, "apply_all_penalties", _see_tokens),
        (_FIRST_VERIFIES, "rejection_sample", _see_drafts),
        (_FIRST_VERIFIES, "generate_uniform_probs", _see_drawn),
        (_SECOND, "Sampler.apply_sampling_params", _see_states),
        (_SECOND_VERIFIES, "rejection_sample", _see_drafts),
    )
    for path, name, see in places:
        with suppress(ImportError, AttributeError):  # of other releases
            *owners, last = name.split(".")
            owner: Any = import_module(path)
            for each in owners:
                owner = getattr(owner, each)
            setattr(owner, last, _watched(watch, rows, getattr(owner, last), see))
    with suppress(ImportError, AttributeError):
        _filter_by_kernel_once(watch, import_module(_FILTERS))


def _filter_by_kernel_once(watch: RunnerWatch, module: Any) -> None:
    """Top-k and top-p by the release's own kernel where a run first filters several rows, and else
    by its twin in torch: the kernel is long under the interpreter. Older releases, in which nobody
    has tried to interpret theirs, filter by the twin alone.
    """
    kernel, twin = module.apply_top_k_top_p_triton, module.apply_top_k_top_p_pytorch
    if _NEW_KERNEL not in inspect.signature(kernel).parameters:
        module.HAS_TRITON = False
        return

    @wraps(kernel)
    def filtered(logits: Tensor, k: Tensor | None, p: Tensor | None, **given: Any) -> Tensor:
        is_first = not watch.counters[_FILTERED] and logits.shape[0] > 1
        watch.counters[_FILTERED] += is_first
        made: Tensor = kernel(logits, k, p, **given) if is_first else twin(logits, k, p)
        return made

    module.apply_top_k_top_p_triton = filtered


def _watched(
    watch: RunnerWatch, rows: Callable[[], list[str]], plain: Any, see: Callable[..., None]
) -> Any:
    """A function of the release, of whose arguments and result something is observed."""
    signature = inspect.signature(plain)

    @wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        if see not in (_see_states, _see_drawn):
            see(watch, rows(), given)
            return plain(*args, **kwargs)
        made = plain(*args, **kwargs)
        see(watch, rows(), given, made)
        return made

    return call


def _see_parameters(watch: RunnerWatch, rows: list[str], given: dict[str, Any]) -> None:
    metadata = given["sampling_metadata"]
    names = (*_BY_ROW, *(() if metadata.no_penalties else _PENALTIES))
    found = {name: getattr(metadata, name, None) for name in names}
    tensors = {name: tensor for name, tensor in found.items() if tensor is not None}
    seeds = {rows[row]: each.initial_seed() for row, each in metadata.generators.items()}
    known: dict[str, Any] = {} if metadata.no_penalties else _outputs(metadata)
    watch.inner_on_device("sampling", tensors, rows=rows, seeds=seeds, **known)


def _outputs(metadata: Any) -> dict[str, Any]:
    """The tokens that penalties count, by row."""
    return {"outputs": [list(map(int, tokens)) for tokens in metadata.output_token_ids]}


def _see_logits(watch: RunnerWatch, rows: list[str], given: dict[str, Any]) -> None:
    logits = given["logits"]
    watch.inner_look("logits", {"sums": logits, "allowed": logits}, _LOOKS, rows=rows)


def _see_tokens(watch: RunnerWatch, rows: list[str], given: dict[str, Any]) -> None:
    """What penalties are for. Behind the last token of a row stands one that is none."""
    output = [[int(token) for token in row] for row in given["output_token_ids"]]
    prompt = {"prompt": given["prompt_token_ids"]}
    watch.inner_on_device("penalties", prompt, rows=rows, output=output)


def _see_drafts(watch: RunnerWatch, rows: list[str], given: dict[str, Any]) -> None:
    """The runners name the drafts otherwise. Sizes are those of what is given of a chunk's rows."""
    logits = given["target_logits"]
    drafts = given.get("draft_token_ids", given.get("draft_sampled"))
    found = {"drafts": drafts, "sums": logits, "allowed": logits}
    tensors = {key: tensor for key, tensor in found.items() if tensor is not None}
    given_tensors = {k: each for k, each in given.items() if isinstance(each, torch.Tensor)}
    sizes = {f"size of {key}": list(each.shape) for key, each in given_tensors.items()}
    watch.inner_look("verification", tensors, _LOOKS, rows=rows, **sizes)


def _see_drawn(watch: RunnerWatch, rows: list[str], given: dict[str, Any], made: Tensor) -> None:
    """The numbers that decide whether drafts are accepted, of the rows that have seeds: a row's
    drafts lie behind those of the rows before it. What others draw depends on what ran before.
    """
    counts = given["num_draft_tokens"]
    ends = [0, *accumulate(counts)]
    seeded = [row for row in sorted(given["generators"]) if row < len(counts) and counts[row]]
    with watch.own():
        tensors = {f"of {rows[row]}": made[ends[row] : ends[row + 1]] for row in seeded}
    if tensors:
        watch.inner_on_device("numbers drawn", tensors)


def _see_states(watch: RunnerWatch, rows: list[str], given: dict[str, Any], made: Tensor) -> None:
    """Of the second runner: a row of logits belongs to the state that its index names. A large
    batch is sampled in chunks, each of some of its rows.
    """
    index, states = given["expanded_idx_mapping"], given["self"].sampling_states
    places = given.get("idx_mapping_np", ())  # older releases have it not, and no chunks
    if 0 < len(places) < len(rows):
        names = given["self"].req_states.index_to_req_id
        rows = [name_of(names[int(at)]) for at in places]
    with watch.own():
        place = watch.memory_of(index)
    by_row = {key: getattr(states, key, None) for key in ("temperature", "seeds")}
    penalties = getattr(given["self"], "penalties_state", None)
    by_row |= {key: getattr(penalties, one, None) for key, one in _SECOND_PENALTIES.items()}
    tensors = {key: each.gpu for key, each in by_row.items() if each is not None}
    looks = _LOOKS | {key: lambda memory: memory[place.long()] for key in tensors}
    watch.inner_look("sampling", {**tensors, "sums": made, "allowed": made}, looks, rows=rows)


def _sums(logits: Tensor) -> Tensor:
    """Of the finite logits of each row."""
    finite = torch.where(torch.isfinite(logits), logits, 0.0)
    return finite.double().sum(-1).round(decimals=_DECIMALS)


def _allowed(logits: Tensor) -> Tensor:
    """How many tokens of each row a mask leaves."""
    return torch.isfinite(logits).sum(-1)


_LOOKS: dict[str, Look] = {"sums": _sums, "allowed": _allowed}
