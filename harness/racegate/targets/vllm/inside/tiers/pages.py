"""Whose content a page of the KV cache has, where nothing is computed: each token that is run
leaves a tag in its place, and the tags of all that comes before it are read, as attention does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from racegate.order.ranges import Ranges, merged
from racegate.targets.common.inside.session import EngineSession, Tensor
from racegate.targets.common.inside.watch import Watch

TAGS = "page tags"
NONE = -1  # in the place of a place: all tags are right
_FIELDS = ("slot_mapping", "block_table", "seq_lens", "query_start_loc")
_TAG_BYTES = 8  # two numbers: the token and its place, each one more than it is: 0 is zeroed


class Rows(NamedTuple):
    """Of attention's metadata, as tensors of the host. slots: [tokens]; table: [rows, blocks];
    lengths: [rows], with the tokens of the step; starts: [rows + 1]
    """

    slots: Tensor
    table: Tensor
    lengths: Tensor
    starts: Tensor

    def spans(self, count: int) -> Iterator[tuple[int, int, int, int]]:
        """Of the first rows: its number, its first token of the step, the one behind its last, and
        how many come before the step. A row whose numbers have not landed is left out.
        """
        for row in range(count):
            begin, end = int(self.starts[row]), int(self.starts[row + 1])
            known = int(self.lengths[row]) - (end - begin)
            if 0 <= begin < end and known >= 0:
                yield row, begin, end, known


@dataclass(frozen=True, slots=True)
class TaggedPages:
    """Tags of the attention layers of a model.

    caches: by the name of a layer, int32 views of its pages [blocks, tokens of a block, 2]
    rows: names of the requests in the batch; true: the token of a request at a place
    """

    session: EngineSession
    watch: Watch
    caches: dict[str, Tensor]
    rows: Callable[[], list[str]]
    true: Callable[[str, int], int | None]

    def touch(self, tokens: Tensor, positions: Tensor, hidden: Tensor) -> None:
        """A forward pass on the current stream. Who reads a tag that is not its own is answered
        with another token, as by garbled states.

        tokens: int64 [n]; hidden: [n, size], of which the first column is the position
        """
        metadata, names = metadata_by_layer(), self.rows()
        for layer, cache in self.caches.items():
            found = metadata.get(layer)
            if names and found is not None:
                self._touch(cache, [getattr(found, one) for one in _FIELDS], names, tokens, hidden)

    def _touch(
        self, cache: Tensor, told: list[Tensor], names: list[str], tokens: Tensor, hidden: Tensor
    ) -> None:
        wrong = torch.empty((len(names), 3), dtype=torch.int64, device="cuda")
        self.session.session.drain()  # what was asked for until here may not have been done yet
        with self.session.own():
            memory = self.session.memory_of(cache)
            known = Rows(*(self.session.memory_of(one) for one in told))
            reads, writes = page_bytes(cache, known, len(names))

        def work(given: list[Tensor], made: list[Tensor]) -> None:
            rows = Rows(*given[1:])
            leave(memory, rows, len(names), given[0])
            made[0][:] = torch.tensor(list(self._compared(memory, rows, names)))
            for row, begin, end, _ in rows.spans(len(names)):
                made[1][begin:end, 0] += made[0][row, 0] != NONE

        self.session.launch(
            "attention (tags)",
            [tokens, *told],
            [wrong, hidden],
            work,
            also_reads=reads,
            also_writes=writes,
        )
        self.watch.on_device(TAGS, {"tags": wrong}, rows=names)

    def _compared(
        self, memory: Tensor, rows: Rows, names: list[str]
    ) -> Iterator[tuple[int, int, int]]:
        """Of each row, the first place with a tag that is not its own, and the tag."""
        contexts = {row: known for row, _, _, known in rows.spans(len(names))}
        for row, name in enumerate(names):
            found = tags_of(memory, rows.table[row], contexts.get(row, 0))
            true = ((self.true(name, place), place) for place in range(len(found)))
            pairs = enumerate(zip(found, true, strict=True))
            yield next(((at, *tag) for at, (tag, right) in pairs if tag != right), (NONE, 0, 0))


def pages_of(runner: Any) -> dict[str, Tensor]:
    """Pages of the attention layers of a started engine's model, by their names."""
    layers = runner.compilation_config.static_forward_context
    own = set(map(id, runner.get_model().modules()))
    found = {name: _cache_of(layer) for name, layer in layers.items() if id(layer) in own}
    return {name: _tagged(cache) for name, cache in found.items() if cache is not None}


def _cache_of(layer: Any) -> Tensor | None:
    """Of an attention layer: [blocks, 2 or heads, tokens of a block, ...]; None of others."""
    cache = getattr(layer, "kv_cache", None)
    if isinstance(cache, list) and len(cache) == 1:  # releases before had one for each stage
        cache = cache[0]
    if not isinstance(cache, torch.Tensor) or cache.dim() < 4:
        return None
    return cache if cache.dtype == torch.float32 else None


def _tagged(cache: Tensor) -> Tensor:
    """The first bytes of each page, in which its tags stand: a page is copied as a whole."""
    numbers = cache.view(torch.int32)
    size = (cache.shape[0], cache.shape[2], 2)
    return torch.as_strided(numbers, size, (cache.stride(0), 2, 1), cache.storage_offset())


def metadata_by_layer() -> dict[str, Any]:
    """Of the forward pass that goes on, by layer."""
    from vllm.forward_context import get_forward_context, is_forward_context_available

    known = get_forward_context().attn_metadata if is_forward_context_available() else None
    return known if isinstance(known, dict) else {}


def leave(memory: Tensor, rows: Rows, count: int, tokens: Tensor) -> None:
    """Writes the tags of a step's tokens into their places.

    memory: int32 [blocks, tokens of a block, 2]; tokens: [n]
    """
    blocks, size, _ = memory.shape
    for _, begin, end, known in rows.spans(count):
        for at in range(begin, min(end, len(rows.slots), len(tokens))):
            block, offset = divmod(int(rows.slots[at]), size)
            if 0 <= block < blocks:
                place = known + at - begin
                memory[block, offset] = torch.tensor([int(tokens[at]) + 1, place + 1])


def tags_of(memory: Tensor, table: Tensor, count: int) -> list[tuple[int, int]]:
    """Token and place, as the tags of so many places say. table: [blocks] of a request"""
    blocks, size, _ = memory.shape
    used = table[: -(-count // size)].long().clamp(0, blocks - 1)
    tags = memory[used].reshape(-1, 2)[:count] - 1
    return [(token, place) for token, place in tags.tolist()]


def page_bytes(cache: Tensor, rows: Rows, count: int) -> tuple[Ranges, Ranges]:
    """Bytes of tags that a step reads and writes, as far as its metadata have landed."""
    blocks, size, _ = cache.shape
    stride = cache.stride(0) * cache.itemsize
    base = cache.data_ptr()
    reads, writes = [], []
    for row, begin, end, known in rows.spans(count):
        for number in range(-(-known // size)):
            block = int(rows.table[row, number])
            if 0 <= block < blocks:
                first = base + block * stride
                reads.append((first, first + min(size, known - number * size) * _TAG_BYTES))
        for slot in rows.slots[begin:end].tolist():
            if 0 <= slot < blocks * size:
                first = base + slot // size * stride + slot % size * _TAG_BYTES
                writes.append((first, first + _TAG_BYTES))
    return merged(reads), merged(writes)
