"""What of the keepers of states and blocks can be exchanged, and what a correct engine has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from racegate.engine.cache.align_cache import AlignCache
from racegate.engine.cache.all_cache import AllCache
from racegate.engine.cache.carriers import Carrier, make_carrier
from racegate.engine.cache.fresh_blocks import FreshBlocks
from racegate.engine.cache.pools import Pools
from racegate.engine.model.model import Model
from racegate.engine.state.setup import Setup


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheParts:
    """align_cache: who moves states between columns; all_cache: who keeps one in every block;

    fresh_blocks: who zeroes new blocks; carrier: what moves prefixes between the tiers
    """

    align_cache: Callable[[Setup, Model], AlignCache] = AlignCache
    all_cache: Callable[[Setup, Model], AllCache] = AllCache
    fresh_blocks: Callable[[Setup, Pools], FreshBlocks] = FreshBlocks
    carrier: Callable[[Setup], Carrier] = make_carrier
