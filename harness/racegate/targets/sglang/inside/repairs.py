"""Repairs of sgl-project/sglang#24221, switched off one by one in a release that has them."""

from __future__ import annotations

import inspect
from typing import Any

from racegate.targets.sglang.wire import Repair


def switch_off(scheduler: Any, repairs: tuple[Repair, ...]) -> None:
    """Raises RuntimeError if the release does not have one of them."""
    for repair in repairs:
        if not _SWITCHES[repair](scheduler):
            raise RuntimeError(f"this release does not have the repair {repair.value}")


def _copy_slots(scheduler: Any) -> bool:
    """The schedule stream copies a state that it keeps, as it did before."""
    pool = scheduler.req_to_token_pool
    if not hasattr(pool, "donate_mamba_ping_pong_slot"):
        return False

    def copied(request: Any, fresh: Any) -> Any:
        kept = pool.get_mamba_ping_pong_keep_idx(request)
        slot = request.mamba_ping_pong_track_buffer[kept].unsqueeze(-1).clone()
        pool.mamba_pool.copy_from(slot, fresh)
        return fresh

    pool.donate_mamba_ping_pong_slot = copied
    return True


def _copy_for_owner(scheduler: Any) -> bool:
    """The schedule stream copies a kept state to the request that begins behind it."""
    tree, pool = scheduler.tree_cache, scheduler.req_to_token_pool
    plain = getattr(tree, "_match_post_processor", None)
    if plain is None or not hasattr(pool, "donate_mamba_ping_pong_slot"):
        return False

    def match(params: Any, *args: Any, **kwargs: Any) -> Any:
        found = plain(params, *args, **kwargs)
        request: Any = getattr(params, "req", None)
        source = getattr(request, "mamba_cow_src_index", None)
        if source is not None:
            pool.mamba_pool.copy_from(source, request.mamba_pool_idx.unsqueeze(0))
            request.mamba_cow_src_index = None
        return found

    tree._match_post_processor = match
    return True


def _without_barrier(scheduler: Any) -> bool:
    """The schedule stream does not wait for the forward stream."""
    import sglang.srt.managers.scheduler as module

    if "war_barrier" not in inspect.getsource(module):
        return False
    module.is_cuda = lambda: False
    return True


_SWITCHES = {
    Repair.DONATED_SLOT: _copy_slots,
    Repair.FORWARD_COPY: _copy_for_owner,
    Repair.WAR_BARRIER: _without_barrier,
}
