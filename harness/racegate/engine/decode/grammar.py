"""Constrained rows: the host forbids tokens before they are drawn. DEFINITION section 3, grammar.

What a row may draw depends on the tokens before it, and these are the last step's token and drafts,
which are only on the device: they are handed to the host in a copy of their own, while the next
step's forward pass runs, and the masks follow it.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from racegate.device.protocol import Device, DeviceBuffer, Event, HostBuffer, Stream
from racegate.engine.state import edges
from racegate.engine.state.buffers import StepOutputs, Twin
from racegate.engine.state.counters import Counters
from racegate.engine.state.lanes import Lane
from racegate.engine.state.sizes import Sizes
from racegate.engine.state.view import PrevStep, StepView, host_input_ids
from racegate.history.trace import Owner
from racegate.scenario.spec import Scenario

WORD_BITS = 32


class HandOff(Protocol):
    """Where a step's tokens, and drafts if it has any, land on the host: [R], [R, K] int32."""

    def slot(self) -> tuple[HostBuffer, ...]:
        """For a copy that is about to be issued."""
        ...

    def taken(self, slot: tuple[HostBuffer, ...]) -> None:
        """They have been read."""
        ...


class PrivateHandOff:
    """Memory of its own for every step: a later copy cannot take the place of an unread one."""

    def __init__(self, device: Device, sizes: Sizes) -> None:
        self._device = device
        self._sizes = sizes

    def slot(self) -> tuple[HostBuffer, ...]:
        rows, k = self._sizes.rows, self._sizes.drafts
        tokens = self._device.host_buffer("next_token_cpu", (rows,), np.int32)
        if not k:
            return (tokens,)
        return (tokens, self._device.host_buffer("drafts_cpu", (rows, k), np.int32))

    def taken(self, slot: tuple[HostBuffer, ...]) -> None:
        for buffer in slot:
            self._device.free_host(buffer)


class GrammarMasks:
    """Masks of constrained rows, and the hand-off of drafts that they need."""

    def __init__(
        self,
        scenario: Scenario,
        device: Device,
        compute: Stream,
        counters: Counters,
        *,
        sizes: Sizes,
        hand_off: HandOff,
    ) -> None:
        self._device = device
        self._compute = compute
        self._counters = counters
        self._stream = device.stream(Lane.DRAFTS)
        self._vocab_size = scenario.model.vocab_size
        self._modulus = {request.name: request.grammar_modulus for request in scenario.requests}
        words = -(-self._vocab_size // WORD_BITS)
        shape = (sizes.rows, 1 + sizes.drafts, words)
        self._mask = Twin(
            device.host_buffer("mask_cpu", shape, np.int32),
            device.device_buffer("mask_gpu", shape, np.int32, stream=compute),
        )
        self._hand_off = hand_off
        self._slot: tuple[HostBuffer, ...] | None = None
        self._proposed = device.event("proposed")
        self._landed: Event = device.event("drafts_landed")
        self._uploaded = device.event("mask_uploaded")
        self._drafts_max = sizes.drafts

    def masks(self, view: StepView, prev: PrevStep | None) -> DeviceBuffer | None:
        """[R, 1 + K, ceil(V / 32)] int32 for the step's verification; None if all rows are free.

        Waits for the last step's tokens and drafts if a constrained row stood in it.
        """
        modulus = self._moduli(view)
        if not modulus.any():
            return None
        step = view.shape.step
        with self._device.action("mask", step=step):
            before = self._tokens_before(view, prev, modulus)
            self._device.wait_host(self._uploaded, edges.MASK_GUARD, step=step)
            self._mask.cpu.write(packed(allowed(before, modulus, self._vocab_size)))
        rows = view.shape.rows
        self._device.upload(self._compute, self._mask.gpu, self._mask.cpu, step=step, rows=rows)
        self._device.record(self._compute, self._uploaded)
        self._counters.masked_rows += int((modulus > 0).sum())
        return self._mask.gpu

    def _moduli(self, view: StepView) -> np.ndarray:
        """[R] int64: 0 for rows that are free, or whose sample is thrown away."""
        moduli = np.array([self._modulus[name] for name in view.rows], np.int64)
        moduli[view.discarded != 0] = 0
        return moduli

    def _tokens_before(
        self, view: StepView, prev: PrevStep | None, modulus: np.ndarray
    ) -> np.ndarray:
        """[R, 1 + K] int32: the token before each one to draw, of the constrained rows."""
        width = 1 + self._drafts_max
        first = view.query_start[1:, None] - 1 - view.draft_lens[:, None]
        place = np.minimum(first + np.arange(width), view.query_start[1:, None] - 1)
        before: np.ndarray = host_input_ids(view)[place]
        handed = (modulus > 0) & (view.prev_positions >= 0)
        if handed.any() and prev is not None:
            tokens = self._handed(view.shape.step, prev, view.prev_positions[handed])
            before[handed] = tokens[view.prev_positions[handed]]
        return before

    def _handed(self, step: int, prev: PrevStep, needed: np.ndarray) -> np.ndarray:
        """[R, 1 + K] int32 in the last step's rows: its tokens and drafts. needed: rows."""
        slot = self._slot
        assert slot is not None, "the last step handed no drafts to the host"
        self._device.wait_host(self._landed, edges.DRAFTS_LANDED, step=step)
        expect: list[Owner | None] = [None] * len(prev.requests)
        for row in needed.tolist():
            expect[row] = (prev.requests[row], prev.step)
        tokens, *drafts = (buffer.read(len(expect), expect=expect) for buffer in slot)
        self._hand_off.taken(slot)
        self._slot = None
        return np.concatenate([tokens[:, None], *drafts], axis=1)

    def send(self, view: StepView, outputs: StepOutputs) -> None:
        """The drafter is issued: tokens and drafts start their way, if a row will need them."""
        self._slot = None
        if not self._moduli(view).any():
            return
        step, rows = view.shape.step, view.shape.rows
        self._slot = self._hand_off.slot()
        self._device.record(self._compute, self._proposed)
        self._device.wait_stream(
            self._stream, self._proposed, edges.DRAFTS_COPY_AFTER_DRAFTER, step=step
        )
        sources = (("next_token", outputs.next_token), ("drafts", outputs.drafts))
        for target, (name, source) in zip(self._slot, sources, strict=False):
            self._device.download(self._stream, target, source, name, step=step, rows=rows)
        self._device.record(self._stream, self._landed)

    def release(self, step: int) -> None:
        """The last step's outputs are about to be freed."""
        self._device.wait_stream(self._compute, self._landed, edges.DRAFTS_RELEASE, step=step)


def allowed(before: np.ndarray, modulus: np.ndarray, vocab_size: int) -> np.ndarray:
    """[R, 1 + K, V] bool: token v may not follow p if (v - p) mod m is 0; m = 0 allows all.

    before: [R, 1 + K] int32; modulus: [R] int64
    """
    m = modulus[:, None, None]
    distance = np.arange(vocab_size) - before[:, :, None].astype(np.int64)
    bits: np.ndarray = (m == 0) | (distance % np.maximum(m, 1) != 0)
    return bits


def packed(bits: np.ndarray) -> np.ndarray:
    """[R, 1 + K, V] bool as [R, 1 + K, ceil(V / 32)] int32: bit v % 32 of word v // 32."""
    rows, columns, vocab_size = bits.shape
    padded = np.zeros((rows, columns, -(-vocab_size // WORD_BITS) * WORD_BITS), bool)
    padded[:, :, :vocab_size] = bits
    words: np.ndarray = np.packbits(padded, axis=-1, bitorder="little").view(np.int32)
    return words
