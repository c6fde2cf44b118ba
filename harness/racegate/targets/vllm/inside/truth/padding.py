"""What pads a forward pass: tokens behind those of requests, as captured graphs have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from racegate.targets.common.inside.watch import Values

NOWHERE = -1  # the slot of no token


def padding_of(of: str, values: Values, tokens: int) -> Iterator[tuple[str, str, Any, Any]]:
    """(field, where, used, true) of an observation. of: what it is called by; tokens: of requests

    Attention writes a token that pads the pass nowhere, and a release may mark such tokens, and no
    others: experts leave them out.
    """
    for group in [name for name in values if name.startswith("slots") and tokens]:
        places: Any = values[group]
        behind = places[tokens:]
        yield f"{of}.slots", f"behind token {tokens}, {group}", behind, [NOWHERE] * len(behind)
    marked = values.get("is_padding")
    if isinstance(marked, list) and marked and tokens:
        yield f"{of}.is_padding", "", marked, [at >= tokens for at in range(len(marked))]
