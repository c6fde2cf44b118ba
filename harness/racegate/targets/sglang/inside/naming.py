"""The buffers of a scheduler by the names that its own objects give them."""

from __future__ import annotations

from typing import Any

from racegate.targets.common.inside.naming import named_buffers as buffers_under


def named_buffers(scheduler: Any) -> list[tuple[int, int, str]]:
    """(first byte, one past the last, name) of pools, of the map of future tokens, and of what the
    attention backends keep.
    """
    return buffers_under(scheduler, "sglang.srt")
