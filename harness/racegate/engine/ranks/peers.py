"""TensorParallel: a model whose layers are spread over ranks, as one of them runs it.

Each rank computes its heads' part of what a layer adds to the residual stream, and the parts are
summed in the order of ranks, so that all have the same bits. Each computes the logits of its part
of the vocabulary; all gather them, and draw the same token from the same number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from racegate.device.protocol import DeviceBuffer, Use, reads, updates, writes
from racegate.engine.model.head import HeadWeights, drawn_logits
from racegate.engine.model.peers import Peers
from racegate.engine.ranks.meeting import Collective, Places, Seat
from racegate.engine.ranks.shards import shard_of
from racegate.engine.state.buffers import Inputs, WorkBuffers
from racegate.engine.state.setup import Setup
from racegate.engine.state.sizes import ceil_div
from racegate.engine.state.view import BatchShape, StepView
from racegate.scenario.settings import ModelSpec
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


class TensorParallel(Peers):
    """lm_head: [V, D], of which this rank takes its rows"""

    def __init__(self, setup: Setup, seat: Seat, lm_head: np.ndarray) -> None:
        device, sizes, compute = setup.device, setup.sizes, setup.compute
        self._setup = setup
        self._seat = seat
        ranks, (vocab, hidden) = seat.communicator.ranks, lm_head.shape
        rows, drawn = ceil_div(vocab, ranks), 1 + sizes.drafts
        mine = np.zeros((rows, hidden), lm_head.dtype)
        own = lm_head[seat.rank * rows : (seat.rank + 1) * rows]
        mine[: len(own)] = own
        self._lm_head = device.constant("lm_head.part", mine)

        def buffer(name: str, *shape: int) -> DeviceBuffer:
            return device.device_buffer(name, shape, sizes.quantity, stream=compute)

        self._partial = buffer("partial", sizes.tokens, hidden)
        self._part = buffer("logits_part", sizes.rows, drawn, rows)
        self._logits = buffer("logits", sizes.rows, drawn, vocab)
        places = seat.communicator.places
        self._sums = places("sum", (sizes.tokens, hidden), sizes.quantity)
        self._gathered = places("gathered", (sizes.rows, drawn, rows), sizes.quantity)

    def shard(self, spec: ModelSpec) -> ModelSpec:
        return shard_of(spec, self._seat.communicator.ranks)

    def residual(self, hidden: DeviceBuffer, tokens: int) -> dict[str, Use]:
        """Layers read it and make their part. hidden: [T, D]"""
        return {"hidden": reads(hidden, tokens), "partial": writes(self._partial, tokens)}

    def add(self, name: str, hidden: DeviceBuffer, shape: BatchShape) -> None:
        """An all-reduce. hidden: [T, D]; name: of the layer"""
        collective = Collective(kind="all_reduce", place=name, step=shape.step, rows=shape.tokens)
        sent = self._send(collective, self._partial, self._sums)
        self._setup.kernels.launch_kernel(
            add_parts,
            {"hidden": updates(hidden, shape.tokens), "parts": reads(sent)},
            name=f"all_reduce.{name}",
            step=shape.step,
        )

    def target(
        self,
        view: StepView,
        inputs: Inputs,
        work: WorkBuffers,
        head: Mapping[str, DeviceBuffer],
    ) -> tuple[dict[str, Use], Mapping[str, DeviceBuffer]]:
        """The logits of the whole vocabulary, which all ranks have gathered. head: the model's"""
        rows, step = view.shape.rows, view.shape.step
        self._setup.kernels.launch_kernel(
            part_of_logits,
            {
                "hidden": reads(work.hidden, view.shape.tokens),
                "logit_index": reads(inputs.logit_index.gpu, rows),
                "part": writes(self._part, rows),
            },
            name="logits",
            step=step,
            constants={**head, "lm_head": self._lm_head},
        )
        collective = Collective(kind="all_gather", place="logits", step=step, rows=rows)
        sent = self._send(collective, self._part, self._gathered)
        self._setup.kernels.launch_kernel(
            join_parts,
            {"parts": reads(sent), "logits": writes(self._logits, rows)},
            name="all_gather.logits",
            step=step,
        )
        return {"logits": updates(self._logits, rows)}, {}

    def _send(self, collective: Collective, part: DeviceBuffer, places: Places) -> DeviceBuffer:
        """Where all ranks' parts stand for what is issued next. part: [n, ...], this rank's"""
        communicator, rank = self._seat
        number = communicator.join(rank, collective)
        place = places[number % len(places)]
        self._setup.kernels.launch_kernel(
            send_part,
            {"part": reads(part, collective.rows), "places": writes(place, mask=1 << rank)},
            name=f"send.{collective.place}",
            step=collective.step,
            rank=rank,
        )
        communicator.arrive(rank, number)
        communicator.wait(rank, number, step=collective.step)
        return place


def send_part(
    kernels: Backend,
    part: Array,  # [n, ...]
    places: Array,  # [ranks, n_max, ...], one row written
    *,
    rank: int,
) -> None:
    """A rank's values where all can read them."""
    places[rank, : len(part)] = part


def add_parts(
    kernels: Backend,
    hidden: Array,  # [T, D], read and written
    parts: Array,  # [ranks, T_max, D]
) -> None:
    """hidden += the sum of the parts, in the order of ranks."""
    for part in parts:
        hidden += part[: len(hidden)]


def part_of_logits(
    kernels: Backend,
    hidden: Array,  # [T, D]
    logit_index: Array,  # [R, 1 + K] int32
    part: Array,  # [R, 1 + K, n], written
    head: HeadWeights,
) -> None:
    """The logits of a rank's part of the vocabulary."""
    part[...] = drawn_logits(kernels, hidden, logit_index, head)


def join_parts(
    kernels: Backend,
    parts: Array,  # [ranks, R_max, 1 + K, n]
    logits: Array,  # [R, 1 + K, V], written
) -> None:
    """The parts of the vocabulary, one behind the other; the last may be padded."""
    size = parts.shape[-1]
    for rank, part in enumerate(parts):
        width = min(size, logits.shape[-1] - rank * size)
        logits[..., rank * size : rank * size + width] = part[: len(logits), :, :width]
