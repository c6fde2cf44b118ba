"""Pools by the kind of blocks that index them."""

from __future__ import annotations

from dataclasses import dataclass

from racegate.device.protocol import DeviceBuffer
from racegate.engine.model.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """By name. attention: caches of entries; state: recurrent states and convolution windows."""

    attention: dict[str, DeviceBuffer]
    state: dict[str, DeviceBuffer]


def pools_of(model: Model, draft_cache: DeviceBuffer | None) -> Pools:
    """Those of an engine. draft_cache: the drafter's, if it keeps one."""
    attention = {f"kv.{index}": cache for index, cache in model.caches.items()}
    if draft_cache is not None:
        attention["draft_kv"] = draft_cache
    state = {f"state.{index}": pool for index, pool in model.states.items()}
    state |= {f"conv.{index}": pool for index, pool in model.conv_windows.items()}
    return Pools(attention=attention, state=state)
