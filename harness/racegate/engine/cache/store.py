"""Cache mode offload: prefixes go to host memory and come back on streams of their own. DEFINITION
section 5, offload; docs/mechanism.md#columns.

The store is addressed by content: what a prefix holds follows from its key. The scheduler says
which prefixes are there to be hit; what was saved for a request that then fell is kept all the
same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from racegate.device.protocol import DeviceBuffer, HostBuffer
from racegate.engine.cache.pools import Pools
from racegate.engine.state import edges
from racegate.engine.state.blocks import Key, keyed
from racegate.engine.state.lanes import Lane
from racegate.engine.state.plan import PlanEntry, StepPlan
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView


@dataclass(frozen=True, slots=True)
class _PoolBlocks:
    """Some blocks of one pool."""

    name: str
    pool: DeviceBuffer
    blocks: tuple[int, ...]


class NoStore:
    """Prefixes stay where they are."""

    def release_blocks(self, step: int) -> None:
        """No block is being saved."""

    def load(self, plan: StepPlan) -> None:
        """There is nothing to load."""

    def save(self, view: StepView) -> None:
        """Nothing is kept."""


class PrefixStore:
    """Saves prefill chunks that end on a boundary, and loads prefixes into fresh blocks."""

    def __init__(self, setup: Setup, pools: Pools) -> None:
        device = setup.device
        self._engine = setup.scenario.engine
        self._device = device
        self._compute = setup.compute
        self._load_stream = device.stream(Lane.LOAD)
        self._save_stream = device.stream(Lane.SAVE)
        self._counters = setup.counters
        self._pools = pools
        self._step_done = device.event("prefix_computed")
        self._saved = device.event("prefix_saved")
        self._blocks_ready = device.event("blocks_ready")
        self._loaded = device.event("prefix_loaded")
        self._images = {request.name: request.images for request in setup.scenario.requests}
        self._prefixes: dict[Key, dict[str, HostBuffer]] = {}

    def release_blocks(self, step: int) -> None:
        """From here on the compute stream may write blocks that were saved and given back."""
        self._device.wait_stream(self._compute, self._saved, edges.REUSE_AFTER_SAVE, step=step)

    def load(self, plan: StepPlan) -> None:
        """Fills the fresh blocks of requests that were admitted with a saved prefix.

        The blocks' earlier owners may still be in flight on the compute stream, and so may their
        zeroing. What was saved has landed: that stream has waited for it in `release_blocks`.
        """
        step, hits = plan.step, [entry for entry in plan.entries if entry.loaded > 0]
        if not hits:
            return
        self._device.record(self._compute, self._blocks_ready)
        self._device.wait_stream(
            self._load_stream, self._blocks_ready, edges.LOAD_AFTER_RELEASE, step=step
        )
        for entry in hits:
            assert entry.known_tokens is not None
            key = keyed(entry.known_tokens, self._images[entry.request])
            saved = self._prefixes[key[: entry.loaded + 1]]
            for held in self._held(entry, entry.loaded):
                self._device.upload_blocks(
                    self._load_stream,
                    held.pool,
                    saved[held.name],
                    f"load.{held.name}.{entry.request}",
                    step=step,
                    blocks=held.blocks,
                )
            self._counters.add("loads")
        self._device.record(self._load_stream, self._loaded)
        self._device.wait_stream(self._compute, self._loaded, edges.FORWARD_AFTER_LOAD, step=step)

    def save(self, view: StepView) -> None:
        """The step's work is issued, drafter included."""
        step, rows = view.shape.step, zip(view.entries, view.states, strict=True)
        chunks = [(entry, self._key(entry, state.tokens)) for entry, state in rows]
        new = [(entry, key) for entry, key in chunks if key and key not in self._prefixes]
        if not new:
            return
        self._device.record(self._compute, self._step_done)
        self._device.wait_stream(
            self._save_stream, self._step_done, edges.SAVE_AFTER_FORWARD, step=step
        )
        for entry, key in new:
            if key not in self._prefixes:
                self._prefixes[key] = self._save(entry, len(key) - 1, step)
        self._device.record(self._save_stream, self._saved)

    def _key(self, entry: PlanEntry, tokens: tuple[int, ...]) -> Key:
        """The prefix that an entry completes and the token behind it; nothing if it does not."""
        end = entry.computed + entry.tokens
        is_kept = entry.is_discarded and end % self._engine.state_interval == 0
        return keyed(tokens, self._images[entry.request])[: end + 1] if is_kept else ()

    def _save(self, entry: PlanEntry, length: int, step: int) -> dict[str, HostBuffer]:
        saved = {}
        for held in self._held(entry, length):
            count = len(held.blocks)
            shape = (count, *held.pool.shape[1:])
            target = self._device.host_buffer(f"saved_{held.name}_cpu", shape, held.pool.dtype)
            self._device.download_blocks(
                self._save_stream,
                target,
                held.pool,
                f"save.{held.name}.{entry.request}",
                step=step,
                blocks=held.blocks,
            )
            saved[held.name] = target
        self._counters.add("saves")
        return saved

    def _held(self, entry: PlanEntry, length: int) -> Iterator[_PoolBlocks]:
        """The blocks that hold a prefix of `length` tokens: a boundary."""
        column = length // self._engine.state_interval - 1
        blocks = entry.blocks[: length // self._engine.block_size]
        for name, pool in self._pools.state.items():
            yield _PoolBlocks(name, pool, (entry.state_blocks[column],))
        for name, pool in self._pools.attention.items():
            yield _PoolBlocks(name, pool, blocks)
