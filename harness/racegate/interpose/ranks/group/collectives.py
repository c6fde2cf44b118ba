"""Operations of NCCL: what they touch, what all ranks have to agree on, and what comes of them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from functools import reduce

import msgspec
import torch

from racegate.interpose.native import factories
from racegate.interpose.ranks.group.kinds import CollectiveKind
from racegate.order.ranges import Ranges

WORDS = 10  # of an operation, as native/nccl.c hands it over


_REDUCING = (CollectiveKind.ALL_REDUCE, CollectiveKind.REDUCE, CollectiveKind.REDUCE_SCATTER)
_ROOTED = (
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
    CollectiveKind.GATHER,
    CollectiveKind.SCATTER,
)
# In the order of ncclDataType_t and ncclRedOp_t.
_TYPES = (
    torch.int8, torch.uint8, torch.int32, torch.uint32, torch.int64, torch.uint64, torch.float16,
    torch.float32, torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2,
)  # fmt: skip
_REDUCTIONS = ("sum", "prod", "max", "min", "avg")
_STEPS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": torch.add,
    "avg": torch.add,
    "prod": torch.mul,
    "max": torch.maximum,
    "min": torch.minimum,
}


class GroupOperation(msgspec.Struct, frozen=True, kw_only=True, array_like=True):
    """One rank's part of an operation of a communicator.

    send, receive: addresses; count: of elements, as NCCL counts them; dtype, reduction: by number
    root: or the peer of a point-to-point operation; rank, ranks: of the communicator
    """

    kind: CollectiveKind
    send: int
    receive: int
    count: int
    dtype: int
    reduction: int
    root: int
    comm: int
    rank: int
    ranks: int

    @property
    def nbytes(self) -> int:
        """Of `count` elements."""
        return self.count * int(_TYPES[self.dtype].itemsize)

    @property
    def is_root(self) -> bool:
        """Whether this rank gives to all, or gets of all."""
        return self.rank == self.root

    @property
    def _is_given(self) -> bool:
        """Whether this rank has already what all get."""
        return self.kind is CollectiveKind.BROADCAST and self.is_root

    @property
    def reads(self) -> Ranges:
        """The bytes that it gives."""
        kind, size = self.kind, self.nbytes
        if kind in (CollectiveKind.REDUCE_SCATTER, CollectiveKind.ALL_TO_ALL):
            size *= self.ranks
        elif kind is CollectiveKind.SCATTER:
            size *= self.ranks * self.is_root
        elif kind is CollectiveKind.BROADCAST:
            size *= self.is_root
        elif kind is CollectiveKind.RECV:
            size = 0
        return ((self.send, self.send + size),) if size else ()

    @property
    def writes(self) -> Ranges:
        """The bytes that it fills. A broadcast in place changes nothing on its root."""
        kind, size = self.kind, self.nbytes
        if kind in (CollectiveKind.ALL_GATHER, CollectiveKind.ALL_TO_ALL):
            size *= self.ranks
        elif kind is CollectiveKind.GATHER:
            size *= self.ranks * self.is_root
        elif kind is CollectiveKind.REDUCE:
            size *= self.is_root
        elif kind is CollectiveKind.SEND or (self._is_given and self.send == self.receive):
            size = 0
        return ((self.receive, self.receive + size),) if size else ()

    @property
    def agreed(self) -> str:
        """What has to be the same on all ranks, in words; a send and its receive are one thing."""
        return f"{'message' if self.kind.is_point_to_point else self.kind.word} of {self._shape}"

    @property
    def words(self) -> str:
        """What this rank does."""
        text = f"{self.kind.word} of {self._shape}"
        if self.kind is CollectiveKind.SEND:
            text += f" to rank {self.root}"
        if self.kind is CollectiveKind.RECV:
            text += f" from rank {self.root}"
        return text

    @property
    def _shape(self) -> str:
        text = f"{self.count} x {str(_TYPES[self.dtype]).removeprefix('torch.')}"
        if self.kind in _REDUCING:
            text += f", {_REDUCTIONS[self.reduction]}"
        if self.kind in _ROOTED:
            text += f", root {self.root}"
        return text

    @property
    def parts(self) -> int:
        """How many operations of ranks are one: of a send the two of a pair."""
        return 2 if self.kind.is_point_to_point else self.ranks

    @property
    def part(self) -> int:
        """Which of them this is: its rank, or 0 of a send and 1 of a receive."""
        if self.kind.is_point_to_point:
            return int(self.kind is CollectiveKind.RECV)
        return self.rank

    @property
    def pair(self) -> tuple[int, int]:
        """From which rank to which, where two alone take part; (-1, -1) of a collective."""
        if not self.kind.is_point_to_point:
            return (-1, -1)
        pair = (self.rank, self.root)
        return pair if self.kind is CollectiveKind.SEND else (self.root, self.rank)

    @property
    def gives_order(self) -> bool:
        """Whether what comes behind it on another rank comes behind what stands before it here."""
        if self.kind in (CollectiveKind.BROADCAST, CollectiveKind.SCATTER):
            return self.is_root
        if self.kind in (CollectiveKind.REDUCE, CollectiveKind.GATHER):
            return not self.is_root
        return self.kind is not CollectiveKind.RECV

    @property
    def takes_order(self) -> bool:
        """Whether what comes behind it here comes behind what stands before it on another rank."""
        if self.kind in (CollectiveKind.BROADCAST, CollectiveKind.SCATTER):
            return not self.is_root
        if self.kind in (CollectiveKind.REDUCE, CollectiveKind.GATHER):
            return self.is_root
        return self.kind is not CollectiveKind.SEND

    def data(self) -> bytes:
        """What it gives, as it is in memory now."""
        return b"".join(ctypes.string_at(low, high - low) for low, high in self.reads)

    def fill(self, made: bytes) -> None:
        """What came of it goes to memory."""
        for low, high in self.writes:
            ctypes.memmove(low, made, min(len(made), high - low))


def operations_at(
    address: int, count: int, ranks: Mapping[int, int]
) -> list[tuple[GroupOperation, int]]:
    """The operations of a group, with the streams that they were put on. ranks: of communicators

    Raises NotImplementedError for an element type or a reduction that nobody models.
    """
    words = (ctypes.c_uint64 * (WORDS * count)).from_address(address)
    made = []
    for at in range(0, WORDS * count, WORDS):
        kind, send, receive, number, dtype, reduction, root, comm, rank, stream = words[at:][:WORDS]
        if dtype >= len(_TYPES):
            raise NotImplementedError(f"NCCL's element type {dtype}")
        if reduction >= len(_REDUCTIONS):
            raise NotImplementedError("a reduction of the program's own (ncclRedOpCreatePreMulSum)")
        operation = GroupOperation(
            kind=CollectiveKind(kind),
            send=send,
            receive=receive,
            count=number,
            dtype=dtype,
            reduction=reduction,
            root=ctypes.c_int64(root).value,
            comm=comm,
            rank=rank,
            ranks=ranks[comm],
        )
        made.append((operation, stream))
    return made


def result_of(operation: GroupOperation, given: Mapping[int, bytes]) -> bytes:
    """What comes of it on its rank. given: what each rank of the communicator gives"""
    kind, size, ranks = operation.kind, operation.nbytes, range(operation.ranks)
    own = slice(operation.rank * size, (operation.rank + 1) * size)
    match kind:
        case CollectiveKind.SEND:
            return b""
        case CollectiveKind.RECV | CollectiveKind.BROADCAST:
            return given[operation.root]
        case CollectiveKind.SCATTER:
            return given[operation.root][own]
        case CollectiveKind.ALL_GATHER | CollectiveKind.GATHER:
            return b"".join(given[rank] for rank in ranks)
        case CollectiveKind.ALL_TO_ALL:
            return b"".join(given[rank][own] for rank in ranks)
        case CollectiveKind.REDUCE_SCATTER:
            return _reduced(operation, [given[rank][own] for rank in ranks])
    return _reduced(operation, [given[rank] for rank in ranks])


def _reduced(operation: GroupOperation, parts: list[bytes]) -> bytes:
    """In the order of ranks, so that all of them get the same bits; short floats are added wide."""
    dtype, name = _TYPES[operation.dtype], _REDUCTIONS[operation.reduction]
    if not parts[0]:
        return b""
    is_short = dtype.is_floating_point and dtype.itemsize < 4
    tensors = [factories.frombuffer(bytearray(part), dtype=dtype) for part in parts]
    total = reduce(_STEPS[name], [one.float() if is_short else one for one in tensors])
    if name == "avg":
        total = total / len(parts) if dtype.is_floating_point else total // len(parts)
    return bytes_of(total.to(dtype))


def bytes_of(tensor: torch.Tensor) -> bytes:
    """Of a contiguous tensor of the host."""
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)
