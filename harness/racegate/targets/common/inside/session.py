"""The session of an engine: operations are called by function, buffer and count.

A name like `d2h num_accepted_tokens_cpu@_update_states_after_model_execute#3` stands for the same
operation in the next release, where the line is another.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from racegate.interpose.device.queue import Queue, Work
from racegate.interpose.device.session import Session
from racegate.interpose.kernels.aliases import alias_of, bytes_of
from racegate.interpose.outcome import DeviceKind
from racegate.order.ranges import Ranges
from racegate.order.recorder import Recorder, Stack
from racegate.targets.common.inside.convergence import Heard

Tensor = Any  # torch is untyped here
_unseen = torch._C._DisableTorchDispatch  # our own work takes no way through modes

_OURS = Path(__file__).parents[1]
# Functions that copy on somebody's behalf: their caller says more.
_HELPERS = frozenset({
    "copy_to_gpu", "copy_to_cpu", "async_tensor_h2d", "async_copy_to_gpu", "copy_to_uva",
    "<listcomp>", "<genexpr>", "<lambda>", "__init__", "__getitem__",
})  # fmt: skip


class EngineRecorder(Recorder):
    """Labels by function instead of file and line. latest: the label made last

    turn: of the engine's loop; turns: by label the one in which it was made
    """

    def __init__(self) -> None:
        super().__init__()
        self.latest = ""
        self.turn = 0
        self.turns: dict[str, int] = {}
        self._labels: dict[str, int] = {}

    def label(self, kind: str, stack: Stack) -> str:
        function = "?"
        for _, _, name in stack:
            function = name.rpartition(".")[2]  # a class may move
            if function not in _HELPERS:
                break
        place = f"{kind}@{function}"
        self._labels[place] = self._labels.get(place, 0) + 1
        self.latest = f"{place}#{self._labels[place]}"
        self.turns[self.latest] = self.turn
        return self.latest

    def begin(self) -> None:
        """Counts start again: a run's names do not depend on how the engine was started."""
        self._labels.clear()
        self.turns.clear()
        self.turn = 0


class EngineSession(Session):
    """Copies and host accesses are named with their buffer.

    kind: whether device memory can be computed on from here, or only by the GPU
    own: where code is that works on the engine's behalf: no operation is called by its functions
    gaps: per held operation, the accesses to its bytes that came while it was held
    heard: what the host gets from the device, if that is noted
    on_gap: called before each of them but the first, where landing is another run
    """

    def __init__(
        self, kind: DeviceKind = DeviceKind.VIRTUAL, *, own: tuple[Path, ...] = ()
    ) -> None:
        self.kind = kind
        self._ours = tuple(map(str, (_OURS, *own)))
        self.engine_recorder = EngineRecorder()
        self.gaps: dict[str, list[str]] = {}
        self.heard: Heard | None = None
        self.on_gap: Callable[[str], None] | None = None
        self._held: dict[str, tuple[Ranges, Ranges]] = {}
        self._lows: list[int] = []
        self._named: list[tuple[int, str]] = []
        self._stacks: dict[int, tuple[Stack, Stack]] = {}
        super().__init__(Queue(), self.engine_recorder)

    @property
    def is_bare(self) -> bool:
        return self.heard is None and self.holds_nothing

    @property
    def holds_nothing(self) -> bool:
        """Nothing will be held any more, and nothing is recorded."""
        return super().is_bare

    def begin(self) -> None:
        """A run begins: nothing of another one is told with it."""
        self.is_over = False
        self.engine_recorder.begin()
        self._held.clear()
        self.gaps.clear()

    def name_buffers(self, found: list[tuple[int, int, str]]) -> None:
        """(first byte, one past the last, name) of memory that has a name in the engine."""
        found = sorted(found)
        self._lows = [low for low, _, _ in found]
        self._named = [(high, name) for _, high, name in found]

    def buffer_at(self, address: int) -> str:
        """The name of the memory, or `temporary`."""
        index = bisect_right(self._lows, address) - 1
        if index >= 0 and address < self._named[index][0]:
            return self._named[index][1]
        return "temporary"

    def memory_of(self, tensor: Tensor) -> Tensor:
        """What the device's work on a tensor is done with: itself, or a CPU alias of its bytes."""
        return tensor if self.kind is DeviceKind.CUDA else alias_of(self, tensor)

    def launch(
        self,
        kind: str,
        reads: list[Tensor],
        writes: list[Tensor],
        work: Callable[[list[Tensor], list[Tensor]], None],
    ) -> None:
        """An operation of ours on the current stream. work: gets the memory of reads and writes,
        when the device comes to it.
        """
        with self.own(), _unseen():
            given = [self.memory_of(tensor) for tensor in reads]
            made = [self.memory_of(tensor) for tensor in writes]
            read = tuple(r for tensor in reads for r in bytes_of(self, tensor))
            written = tuple(r for tensor in writes for r in bytes_of(self, tensor))

        def run() -> None:
            with self.own(), _unseen(), torch.no_grad():
                work(given, made)

        self.issue(kind, torch._C._cuda_getCurrentRawStream(0), read, written, run)
        self.queue.issued()

    def issue(
        self,
        kind: str,
        stream: int,
        reads: Ranges,
        writes: Ranges,
        run: Work | None,
        *,
        stack: Stack | None = None,
    ) -> str:
        if self.heard is not None and run is not None:
            run = self.heard.following(kind, run)
        if self.is_bare:
            return super().issue(kind, stream, reads, writes, run, stack=stack)
        if kind in ("d2h", "h2d", "h2h"):
            kind = f"{kind} {self._host_side(kind, reads, writes)}"
        was_pending = self.queue.has_pending()
        label = super().issue(kind, stream, reads, writes, run, stack=stack)
        if was_pending and not self.queue.keeps(label):  # else it is ordered behind what is held
            self._note_gap(label, reads, writes)
        if self.queue.has_pending() and self.queue.is_held(label):
            self._held[label] = (reads, writes)
            self.gaps[label] = []
        return label

    def host_access(self, kind: str, reads: Ranges, writes: Ranges) -> None:
        if self.is_own or not (reads or writes):
            return
        if not self.is_bare:
            low = (writes or reads)[0][0]
            was_pending = self.queue.has_pending()
            super().host_access(f"{kind} {self.buffer_at(low)}", reads, writes)
            if was_pending:
                self._note_gap(self.engine_recorder.latest, reads, writes)
        if self.heard is not None:
            self.heard.touches(reads, writes)

    def reach(self, label: str, reads: Ranges, writes: Ranges, lane: int | None = None) -> None:
        if self.on_gap is not None and self._opens_gap(reads, writes, lane):
            self.on_gap(label)
        super().reach(label, reads, writes, lane)

    def _opens_gap(self, reads: Ranges, writes: Ranges, lane: int | None) -> bool:
        """Whether what comes now is a gap of a held operation, and not its first."""
        conflicting = self._conflicting(reads, writes)
        if not any(self.gaps[held] for held in conflicting):
            return False
        if lane is None:
            return True
        clock = self.recorder.lanes.clock
        return not self.queue.is_behind(lane, clock(lane), clock(self.thread_lane()))

    def host_learns(self, value: object) -> None:
        if self.heard is not None and not self.is_own:
            self.heard.learns(value)

    def stack(self, frame: FrameType | None = None) -> Stack:
        stack = super().stack(frame)
        known = self._stacks.get(id(stack))
        if known is None:  # the walk hands out the same tuple again, and keeps it
            own = tuple(place for place in stack if not place[0].startswith(self._ours))
            known = self._stacks[id(stack)] = (stack, own)
        return known[1]

    def _note_gap(self, label: str, reads: Ranges, writes: Ranges) -> None:
        for held in self._conflicting(reads, writes):
            self.gaps[held].append(label)

    def _conflicting(self, reads: Ranges, writes: Ranges) -> list[str]:
        """The held operations that an access to these bytes is in conflict with."""
        found = []
        for held, (held_reads, held_writes) in self._held.items():
            is_conflict = _overlap(held_writes, (*reads, *writes)) or _overlap(held_reads, writes)
            if is_conflict and self.queue.keeps(held):
                found.append(held)
        return found

    def _host_side(self, kind: str, reads: Ranges, writes: Ranges) -> str:
        ranges = (reads if kind == "h2d" else writes) or writes or reads
        return self.buffer_at(ranges[0][0]) if ranges else "temporary"


def _overlap(some: Ranges, others: Ranges) -> bool:
    return any(low < end and first < high for low, high in some for first, end in others)
