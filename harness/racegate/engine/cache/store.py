"""Cache mode offload: prefixes go to host memory and come back, by what carries them (carriers).
DEFINITION section 5, offload; docs/mechanism.md#columns.

The store is addressed by content: what a prefix holds follows from its key. The scheduler says
which prefixes are there to be hit; what was saved for a request that then fell is kept all the
same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import islice

from racegate.device.protocol import DeviceBuffer, HostBuffer
from racegate.engine.cache.carriers import Carrier, StepSave
from racegate.engine.cache.pools import Pools
from racegate.engine.state.blocks import Key, keyed
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

    def release_blocks(self, plan: StepPlan) -> None:
        """No block is being saved."""

    def load(self, plan: StepPlan) -> None:
        """There is nothing to load."""

    def save(self, view: StepView) -> None:
        """Nothing is kept."""


class PrefixStore:
    """Saves prefill chunks that end on a boundary, and loads prefixes into fresh blocks."""

    def __init__(self, setup: Setup, pools: Pools, carrier: Carrier) -> None:
        device = setup.device
        self._engine = setup.scenario.engine
        self._device = device
        self._compute = setup.compute
        self._carrier = carrier
        self._counters = setup.counters
        self._pools = pools
        self._step_done = device.event("prefix_computed")
        self._blocks_ready = device.event("blocks_ready")
        self._images = {request.name: request.images for request in setup.scenario.requests}
        self._prefixes: dict[Key, dict[str, HostBuffer]] = {}
        self._completed: dict[Key, int] = {}

    def release_blocks(self, plan: StepPlan) -> None:
        """From here on blocks that were saved and given back may be written, what was saved be
        loaded, and memory that is not to be held any longer be another prefix's.
        """
        loads = {self._loaded(entry) for entry in plan.taking if entry.loaded}
        evicted = self._evicted(plan, loads)
        self._carrier.free(plan, loads.union(evicted))
        if evicted:
            self._carrier.forget(plan.step)
            self._evict(evicted, plan.step)

    def _evicted(self, plan: StepPlan, loads: Set[Key]) -> list[Key]:
        """What the scheduler does not hold, and none of the steps completes whose output it has
        yet to see: by these it may come to hold it. loads: are held for this step
        """
        if plan.saved is None:
            return []
        held, completed = plan.saved | loads, self._completed.items()
        return [key for key, step in completed if step <= plan.settled and key not in held]

    def _evict(self, keys: Sequence[Key], step: int) -> None:
        with self._device.action("evict", step=step):
            for key in keys:
                del self._completed[key]
                for buffer in self._prefixes.pop(key).values():
                    self._device.free_host(buffer)
        self._counters.add("evictions", len(keys))

    def load(self, plan: StepPlan) -> None:
        """Fills the fresh blocks of requests that were admitted with a saved prefix.

        The blocks' earlier owners may still be in flight on the compute stream, and so may their
        zeroing. What was saved has landed where loads can read it, since `release_blocks`.
        """
        step, hits = plan.step, [entry for entry in plan.taking if entry.loaded > 0]
        if not hits:
            return
        self._device.record(self._compute, self._blocks_ready)
        self._carrier.load(partial(self._load, hits, step), self._blocks_ready, step=step)
        self._counters.add("loads", len(hits) - len(plan.lost))

    def _load(self, hits: list[PlanEntry], step: int) -> None:
        """Of what fails the first pool has come."""
        pools = 1 if step in self._engine.failing_loads else None
        for entry in hits:
            saved = self._prefixes[self._loaded(entry)]
            for held in islice(self._held(entry, entry.loaded), pools):
                self._device.upload_blocks(
                    self._carrier.loading,
                    held.pool,
                    saved[held.name],
                    f"load.{held.name}.{entry.request}",
                    step=step,
                    blocks=held.blocks,
                )

    def save(self, view: StepView) -> None:
        """The step's work is issued, drafter included."""
        step, new = view.shape.step, self._new_prefixes(view)
        if not new:
            return
        self._device.record(self._compute, self._step_done)
        places = [self._place(entry, len(key) - 1) for key, entry in new.items()]
        save = StepSave(
            step=step,
            keys=frozenset(new),
            blocks=frozenset(block for blocks, _ in places for block in blocks),
            state_blocks=frozenset(state_block for _, state_block in places),
        )
        self._prefixes |= {key: self._memory(entry, len(key) - 1) for key, entry in new.items()}
        self._carrier.save(save, partial(self._save, new, step), self._step_done)
        self._counters.add("saves", len(new))

    def _new_prefixes(self, view: StepView) -> dict[Key, PlanEntry]:
        """What a step completes and nobody has saved, with the first row that has it."""
        new: dict[Key, PlanEntry] = {}
        for entry, state in zip(view.entries, view.states, strict=True):
            key = self._key(entry, state.tokens)
            if key:
                self._completed[key] = view.shape.step
                if key not in self._prefixes:
                    new.setdefault(key, entry)
        return new

    def _loaded(self, entry: PlanEntry) -> Key:
        """The key of what an entry was admitted with."""
        assert entry.known_tokens is not None
        return keyed(entry.known_tokens, self._images[entry.request])[: entry.loaded + 1]

    def _key(self, entry: PlanEntry, tokens: tuple[int, ...]) -> Key:
        """The prefix that an entry completes and the token behind it; nothing if it does not."""
        end = entry.computed + entry.tokens
        is_kept = entry.is_discarded and end % self._engine.state_interval == 0
        return keyed(tokens, self._images[entry.request])[: end + 1] if is_kept else ()

    def _memory(self, entry: PlanEntry, length: int) -> dict[str, HostBuffer]:
        """Where a prefix of `length` tokens goes, by pool."""
        return {
            held.name: self._device.host_buffer(
                f"saved_{held.name}_cpu", (len(held.blocks), *held.pool.shape[1:]), held.pool.dtype
            )
            for held in self._held(entry, length)
        }

    def _save(self, new: Mapping[Key, PlanEntry], step: int) -> None:
        for key, entry in new.items():
            for held in self._held(entry, len(key) - 1):
                self._device.download_blocks(
                    self._carrier.saving,
                    self._prefixes[key][held.name],
                    held.pool,
                    f"save.{held.name}.{entry.request}",
                    step=step,
                    blocks=held.blocks,
                )

    def _place(self, entry: PlanEntry, length: int) -> tuple[tuple[int, ...], int]:
        """The attention blocks and the state block of a prefix of `length` tokens: a boundary."""
        column = length // self._engine.state_interval - 1
        return entry.blocks[: length // self._engine.block_size], entry.state_blocks[column]

    def _held(self, entry: PlanEntry, length: int) -> Iterator[_PoolBlocks]:
        """The same by pool."""
        blocks, state_block = self._place(entry, length)
        for name, pool in self._pools.state.items():
            yield _PoolBlocks(name, pool, (state_block,))
        for name, pool in self._pools.attention.items():
            yield _PoolBlocks(name, pool, blocks)
