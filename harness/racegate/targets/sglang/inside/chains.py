"""Plain forms of the compiled kernels that build and verify a tree of drafts, for chains: each
draft has one that follows it and no sibling.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any, NamedTuple

import torch

MODULE = "sglang.kernels.ops.speculative.tree"
_FULL, _DRAFTS_ONLY = 0, 1  # SGLang's TreeMaskMode


def take_plain_chains() -> None:
    """In releases whose trees of drafts are kernels that are compiled when they are first used."""
    with suppress(ImportError):
        module: Any = importlib.import_module(MODULE)
        module.build_tree_kernel_efficient = build_chain
        module.verify_tree_greedy = verify_chain


class BuildLaunch(NamedTuple):
    """What the kernel is given that builds a tree, in SGLang's order. R requests have K drafts."""

    parent_list: Any
    selected_index: Any
    lengths: Any  # [R] int64
    mask: Any  # [N] bool, or bytes
    positions: Any  # [R * (1 + K)] int64
    place: Any  # [R, 1 + K] int64, as the next two
    following: Any
    sibling: Any
    topk: int
    depth: int
    width: int  # 1 + K
    mask_mode: int


class VerifyLaunch(NamedTuple):
    """What the kernel is given that verifies a tree, by SGLang's names."""

    predicts: Any  # [R * (1 + K)] int32
    accept_index: Any  # [R, 1 + K] int32
    accept_token_num: Any  # [R] int32
    candidates: Any  # [R, 1 + K] int64, as all that follow
    retrive_index: Any
    retrive_next_token: Any
    retrive_next_sibling: Any
    target_predict: Any


def build_chain(*given: Any) -> None:
    """Writes where each draft stands, which follows it, and what it attends to. given: as of a
    `BuildLaunch`. Raises NotImplementedError for trees and for masks that are packed.
    """
    tree = BuildLaunch(*given)
    if tree.topk != 1:
        raise NotImplementedError(f"racegate: drafts in a tree, {tree.topk} at a time")
    requests, width = tree.place.shape
    own = torch.arange(width, device=tree.positions.device)
    tree.positions.copy_((tree.lengths[:, None] + own).flatten())
    tree.place.copy_(torch.arange(requests * width, device=own.device).view(requests, width))
    tree.following[:, :-1] = own[1:]
    if tree.mask_mode == _FULL:
        _write_mask(tree.mask, tree.lengths, own)
    elif tree.mask_mode == _DRAFTS_ONLY:
        causal = (own[None, :] <= own[:, None]).expand(requests, width, width)
        tree.mask[: causal.numel()] = causal.flatten()
    else:
        raise NotImplementedError(f"racegate: masks of drafts in mode {tree.mask_mode}")


def _write_mask(mask: Any, lengths: Any, own: Any) -> None:
    """A request has a row for each of its tokens, with a column for each before them and for each
    of them. Columns of those before are left as they are.
    """
    width = len(own)
    columns = lengths + width  # [R]
    ends = (columns * width).cumsum(0)
    place = torch.arange(len(mask), device=own.device)
    request = torch.searchsorted(ends, place, right=True).clamp(max=len(lengths) - 1)
    inside = place - (ends - columns * width)[request]
    row, column = inside // columns[request], inside % columns[request] - lengths[request]
    is_own = (column >= 0) & (place < ends[-1])
    mask.copy_(torch.where(is_own, (column <= row).to(mask.dtype), mask))


def verify_chain(*given: Any, **named: Any) -> None:
    """Accepts drafts as long as each is what the model says of the one before. given, named: as of
    a `VerifyLaunch`
    """
    tree = VerifyLaunch(*given, **named)
    said, predicts, accepted = tree.target_predict.flatten(), tree.predicts, tree.accept_index
    last = tree.retrive_index[:, 0]
    accepted[:, 0] = last
    at = torch.zeros_like(last)
    count = torch.zeros_like(tree.accept_token_num)
    is_on = torch.ones_like(last, dtype=torch.bool)
    for depth in range(1, accepted.shape[1]):
        at = _of_each(tree.retrive_next_token, at)
        is_on = is_on & (at >= 0) & (_of_each(tree.candidates, at) == said[last])
        own = torch.where(is_on, said[last], predicts[last])
        predicts.scatter_(0, last, own.to(predicts.dtype))
        found = _of_each(tree.retrive_index, at)
        accepted[:, depth] = torch.where(is_on, found, accepted[:, depth]).to(accepted.dtype)
        last = torch.where(is_on, found, last)
        count = count + is_on
    predicts.scatter_(0, last, said[last].to(predicts.dtype))
    tree.accept_token_num.copy_(count)


def _of_each(values: Any, at: Any) -> Any:
    """One value of each request's. values: [R, 1 + K]; at: [R], less than 0 for any"""
    return values.gather(1, at.clamp(min=0)[:, None])[:, 0]
