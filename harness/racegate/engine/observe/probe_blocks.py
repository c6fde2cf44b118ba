"""What the probe notes of blocks: whether new ones are zero, and what was loaded into them.
DEFINITION section 7, fresh_dirty and loaded_kv.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from racegate.device.protocol import DeviceBuffer
from racegate.engine.observe.probe import ProbedMemory
from racegate.engine.state.view import StepView
from racegate.scenario.settings import EngineSpec
from racegate.scenario.spec import OwnScenario
from racegate_kernels.poison import poison_of

# What to copy, by name: a buffer, and which rows of it: some, the first n, or all.
Parts = dict[str, tuple[DeviceBuffer, np.ndarray | int | None]]


def caches_of(memory: ProbedMemory) -> dict[str, DeviceBuffer]:
    """The caches of attention layers and of the drafter, by name."""
    caches = {f"kv.{index}": cache for index, cache in memory.model.caches.items()}
    if memory.draft_cache is not None:
        caches["draft_kv"] = memory.draft_cache
    return caches


def input_parts(view: StepView, memory: ProbedMemory, scenario: OwnScenario) -> Parts:
    """What the host has prepared and the device has derived, by row and by token."""
    inputs, work = memory.inputs, memory.work
    rows, tokens = view.shape.rows, view.shape.tokens
    parts: Parts = {
        "computed": (work.computed, rows),
        "accepted": (work.accepted, rows),
        "seq_lens": (work.seq_lens, rows),
        "query_start": (inputs.query_start.gpu, rows + 1),
        "positions": (work.positions, tokens),
        "slot_mapping": (work.slot_mapping, tokens),
        "input_ids": (inputs.input_ids.gpu, tokens),
    }
    if scenario.model.has_mrope:
        parts["mrope_positions"] = (work.mrope_positions, tokens)
    if scenario.engine.has_cascade:
        parts["common_prefix"] = (inputs.common_prefix.gpu, 1)
    return parts


class BlockRows:
    """The blocks that some tables name, and in which row of a copy of just these each is.

    blocks: [n] int64, ascending
    """

    __slots__ = ("blocks",)

    def __init__(self, tables: Iterable[Sequence[int]]) -> None:
        self.blocks = np.array(sorted(set().union(*tables)), np.int64)

    def rows_of(
        self,
        blocks: np.ndarray,  # [...] int64
    ) -> np.ndarray:
        """[...] int64: where each of these blocks is; the tables have to name it."""
        return np.searchsorted(self.blocks, blocks)

    def pick(
        self,
        arrays: dict[str, np.ndarray],  # name -> [n, ...], of these blocks
        windows: np.ndarray,  # [R, n] int64
        *,
        convolved: np.ndarray | int,  # [R]
    ) -> None:
        """States become those of some windows' blocks, convolution windows those of one block of
        each.
        """
        of_convolution = windows[np.arange(len(windows)), convolved]
        for name in arrays:
            if name.startswith(("state.", "conv.")):
                blocks = windows if name.startswith("state.") else of_convolution
                arrays[name] = self._picked(arrays[name], blocks)

    def _picked(
        self,
        content: np.ndarray,  # [n, ...], of these blocks
        blocks: np.ndarray,  # [...] int64
    ) -> np.ndarray:
        """[..., ...]: what these blocks hold; poison of those that no table names."""
        rows = np.minimum(self.rows_of(blocks), len(self.blocks) - 1)
        picked: np.ndarray = content[rows]
        picked[self.blocks[rows] != blocks] = poison_of(content.dtype)
        return picked


@dataclass(slots=True)
class StepSnapshots:
    """One step's snapshots, until the device has finished.

    windows: [R, 1 + K] int64, blocks of the running state windows; computed_host, backup: [R] int32
    live: [R] int64, the block that each row starts from, in cache mode all
    blocks, state_blocks: those of the plan's tables, which are copied of the pools
    inputs, forwarded, sampled: by name, once the device got there
    """

    view: StepView
    windows: np.ndarray
    computed_host: np.ndarray
    backup: np.ndarray
    blocks: BlockRows
    state_blocks: BlockRows
    live: np.ndarray | None = None
    inputs: dict[str, np.ndarray] = field(default_factory=dict)
    forwarded: dict[str, np.ndarray] = field(default_factory=dict)
    sampled: dict[str, np.ndarray] = field(default_factory=dict)


class FreshTaken:
    """The new blocks of a step, and their content right behind their zeroing.

    arrays: pool -> [n, ...] content, once the device got there; a state pool's name begins with
        "state:"
    """

    __slots__ = ("_owner", "_state_owner", "arrays", "blocks", "rows", "state_blocks")

    def __init__(self, view: StepView, engine: EngineSpec) -> None:
        self.rows = view.shape.rows
        self.blocks: list[int] = []
        self.state_blocks: list[int] = []
        self._owner: list[int] = []
        self._state_owner: list[int] = []
        self.arrays: dict[str, np.ndarray] = {}
        for row, entry in enumerate(view.entries):
            loaded = set(entry.blocks[: entry.loaded // engine.block_size])
            column = entry.loaded // engine.state_interval - 1
            loaded_state = set(entry.state_blocks[column : column + 1]) if column >= 0 else set()
            for block in entry.fresh_blocks:
                if block not in loaded:
                    self.blocks.append(block)
                    self._owner.append(row)
            for block in entry.fresh_state_blocks:
                if block not in loaded_state:
                    self.state_blocks.append(block)
                    self._state_owner.append(row)

    def parts(self, memory: ProbedMemory) -> Parts:
        """What to copy."""
        blocks = np.array(self.blocks, np.int64)
        states = np.array(self.state_blocks, np.int64)
        model, caches = memory.model, caches_of(memory)
        parts: Parts = {name: (cache, blocks) for name, cache in caches.items()}
        for index, pool in model.states.items():
            parts[f"state:state.{index}"] = (pool, states)
            parts[f"state:conv.{index}"] = (model.conv_windows[index], states)
        return parts

    def dirty(self) -> np.ndarray:
        """[R] int32: new blocks by row that are not zero in every pool."""
        counts = np.zeros(self.rows, np.int32)
        for owner, prefix in ((self._owner, False), (self._state_owner, True)):
            is_dirty = np.zeros(len(owner), bool)
            for name, array in self.arrays.items():
                if name.startswith("state:") == prefix:
                    is_dirty |= array.any(axis=tuple(range(1, array.ndim)))
            np.add.at(counts, np.array(owner, np.int64)[is_dirty], 1)
        return counts


def loaded_parts(view: StepView, engine: EngineSpec, caches: Mapping[str, DeviceBuffer]) -> Parts:
    """Blocks into which the step loaded saved prefixes, by row and then by position."""
    blocks = [
        block
        for entry in view.entries
        for block in entry.blocks[: entry.loaded // engine.block_size]
    ]
    return {f"loaded_{name}": (cache, np.array(blocks, np.int64)) for name, cache in caches.items()}


def as_entries(
    blocks: np.ndarray,  # [n, S, E]
) -> np.ndarray:
    """[n, S, E] blocks as [n * S, E] entries."""
    return blocks.reshape(blocks.shape[0] * blocks.shape[1], blocks.shape[2])


def of_rows(choices: np.ndarray, index: np.ndarray, is_empty: np.ndarray) -> np.ndarray:
    """choices [R, C, ...] at index [R]; poison where the index is outside, zeros where the row is
    empty.
    """
    inside = (index >= 0) & (index < choices.shape[1])
    picked: np.ndarray = choices[np.arange(len(choices)), np.where(inside, index, 0)]
    blanked(picked, inside, is_empty)
    return picked


def blanked(picked: np.ndarray, inside: np.ndarray, is_empty: np.ndarray) -> None:
    """Poison into the rows [R, ...] that were picked from outside, zeros into those that are empty.
    Most often there are none.
    """
    if not inside.all():
        picked[~inside] = poison_of(picked.dtype)
    if is_empty.any():
        picked[is_empty] = 0


def conv_at(
    windows: np.ndarray,  # [R, C, W - 1 or more]
    offset: np.ndarray,  # [R]
    is_empty: np.ndarray,  # [R] bool
    *,
    width: int,
) -> np.ndarray:
    """[R, C, W - 1]: the convolution windows at their offsets."""
    inside = (offset >= 0) & (offset <= windows.shape[2] - width + 1)
    taps = np.where(inside, offset, 0)[:, None] + np.arange(width - 1)
    picked = windows[np.arange(len(windows))[:, None], :, taps].swapaxes(1, 2).copy()
    blanked(picked, inside, is_empty)
    return picked


def token_windows(
    table: np.ndarray,  # [R, 1 + N] int64, blocks by token, and of the state that a row starts from
    view: StepView,
    engine: EngineSpec,
) -> tuple[np.ndarray, np.ndarray]:
    """[R, 1 + K] and [R] int64: where cache mode all keeps the states of a row's first tokens, of a
    prefill row its last one, and the block that the row starts from.
    """
    windows = table[:, : 1 + engine.draft_len_max].copy()
    prefills = np.flatnonzero(view.is_decode == 0)
    windows[prefills, 0] = table[prefills, view.tokens[prefills] - 1]
    return windows, table[:, -1]
