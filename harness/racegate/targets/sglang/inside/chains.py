"""Plain forms of the compiled kernels that build and verify a tree of drafts, for chains: each
draft has one that follows it and no sibling.
"""

from __future__ import annotations

import importlib
from contextlib import suppress
from typing import Any

import torch

MODULE = "sglang.kernels.ops.speculative.tree"
_FULL, _DRAFTS_ONLY = 0, 1  # SGLang's TreeMaskMode


def take_plain_chains() -> None:
    """In releases whose trees of drafts are kernels that are compiled when they are first used."""
    with suppress(ImportError):
        module: Any = importlib.import_module(MODULE)
        module.build_tree_kernel_efficient = build_chain
        module.verify_tree_greedy = verify_chain


def build_chain(
    parent_list: Any,
    selected_index: Any,
    verified_seq_len: Any,  # [R] int64
    tree_mask: Any,  # [N] bool, or bytes
    positions: Any,  # [R * (1 + K)] int64
    retrive_index: Any,  # [R, 1 + K] int64, as the next two
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    topk: int,
    depth: int,
    draft_token_num: int,
    tree_mask_mode: int,
) -> None:
    """Writes where each draft stands, which follows it, and what it attends to."""
    _refuse_trees(topk)
    requests, width = retrive_index.shape
    own = torch.arange(width, device=positions.device)
    positions.copy_((verified_seq_len[:, None] + own).flatten())
    retrive_index.copy_(torch.arange(requests * width, device=own.device).view(requests, width))
    retrive_next_token[:, :-1] = own[1:]
    if tree_mask_mode == _FULL:
        _write_mask(tree_mask, verified_seq_len, own)
    elif tree_mask_mode == _DRAFTS_ONLY:
        causal = (own[None, :] <= own[:, None]).expand(requests, width, width)
        tree_mask[: causal.numel()] = causal.flatten()
    else:
        raise NotImplementedError(f"racegate: masks of drafts in mode {tree_mask_mode}")


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


def verify_chain(
    predicts: Any,  # [R * (1 + K)] int32
    accept_index: Any,  # [R, 1 + K] int32
    accept_token_num: Any,  # [R] int32
    candidates: Any,  # [R, 1 + K] int64, as all that follow
    retrive_index: Any,
    retrive_next_token: Any,
    retrive_next_sibling: Any,
    target_predict: Any,
) -> None:
    """Accepts drafts as long as each is what the model says of the one before."""
    said = target_predict.flatten()
    last = retrive_index[:, 0]
    accept_index[:, 0] = last
    at = torch.zeros_like(last)
    count = torch.zeros_like(accept_token_num)
    is_on = torch.ones_like(last, dtype=torch.bool)
    for depth in range(1, accept_index.shape[1]):
        at = retrive_next_token.gather(1, at.clamp(min=0)[:, None])[:, 0]
        there = at.clamp(min=0)[:, None]
        draft = candidates.gather(1, there)[:, 0]
        is_on = is_on & (at >= 0) & (draft == said[last])
        predicts.scatter_(
            0, last, torch.where(is_on, said[last], predicts[last]).to(predicts.dtype)
        )
        found = retrive_index.gather(1, there)[:, 0]
        accept_index[:, depth] = torch.where(is_on, found, accept_index[:, depth]).to(
            accept_index.dtype
        )
        last = torch.where(is_on, found, last)
        count = count + is_on
    predicts.scatter_(0, last, said[last].to(predicts.dtype))
    accept_token_num.copy_(count)


def _refuse_trees(topk: int) -> None:
    if topk != 1:
        raise NotImplementedError(f"racegate: drafts in a tree, {topk} at a time: chains alone are")
