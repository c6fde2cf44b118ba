"""Constrained rows: the host forbids tokens before they are drawn. DEFINITION section 3, grammar.

What a row may draw depends on the tokens before it, and these are the last step's token and drafts,
which are only on the device: they are handed to the host in a copy of their own, while the next
step's forward pass runs, and the masks follow it.
"""

from __future__ import annotations

import numpy as np

from racegate.device.protocol import DeviceBuffer, Event, HostBuffer
from racegate.engine.state import edges
from racegate.engine.state.buffers import StepOutputs, UploadedTwin
from racegate.engine.state.lanes import Lane
from racegate.engine.state.setup import Setup
from racegate.engine.state.sizes import ceil_div
from racegate.engine.state.view import PrevStep, StepView, host_input_ids
from racegate.history.trace import Owner

WORD_BITS = 32


class PrivateHandOff:
    """Where a step's tokens, and drafts if it has any, land on the host: [R], [R, K] int32. In
    memory of its own for every step: a later copy cannot take the place of an unread one.
    """

    def __init__(self, setup: Setup) -> None:
        self._device = setup.device
        self._sizes = setup.sizes

    def landing(self) -> tuple[HostBuffer, ...]:
        """For a copy that is about to be issued."""
        rows, drafts = self._sizes.rows, self._sizes.drafts
        tokens = self._device.host_buffer("next_token_cpu", (rows,), np.int32)
        if not drafts:
            return (tokens,)
        return (tokens, self._device.host_buffer("drafts_cpu", (rows, drafts), np.int32))

    def taken(self, landing: tuple[HostBuffer, ...]) -> None:
        """They have been read."""
        for buffer in landing:
            self._device.free_host(buffer)


class NoGrammarMasks:
    """All rows of the scenario are free."""

    def upload(self, view: StepView, prev: PrevStep) -> DeviceBuffer | None:
        """There is none."""
        return None

    def send(self, view: StepView, outputs: StepOutputs) -> None:
        """Nobody asks for drafts."""

    def release(self, step: int) -> None:
        """Nothing reads them."""


class GrammarMasks:
    """Masks of constrained rows, and the hand-off of drafts that they need."""

    def __init__(self, setup: Setup, hand_off: PrivateHandOff) -> None:
        device, sizes, compute = setup.device, setup.sizes, setup.compute
        requests = setup.scenario.requests
        self._setup = setup
        self._device = device
        self._compute = compute
        self._stream = device.stream(Lane.DRAFTS)
        self._vocab_size = setup.scenario.model.vocab_size
        self._modulus = {request.name: request.grammar_modulus for request in requests}
        shape = (sizes.rows, 1 + sizes.drafts, ceil_div(self._vocab_size, WORD_BITS))
        self._mask = UploadedTwin(
            device.host_buffer("mask_cpu", shape, np.int32),
            device.device_buffer("mask_gpu", shape, np.int32, stream=compute),
        )
        self._hand_off = hand_off
        self._landing: tuple[HostBuffer, ...] | None = None
        self._proposed = device.event("proposed")
        self._landed: Event = device.event("drafts_landed")
        self._uploaded = device.event("mask_uploaded")

    def upload(self, view: StepView, prev: PrevStep) -> DeviceBuffer | None:
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
        self._setup.upload(self._mask, view.shape.rows, step=step)
        self._device.record(self._compute, self._uploaded)
        self._setup.counters.add("masked_rows", int((modulus > 0).sum()))
        return self._mask.gpu

    def _moduli(self, view: StepView) -> np.ndarray:
        """[R] int64: 0 for rows that are free, or whose sample is thrown away."""
        moduli = np.array([self._modulus[name] for name in view.rows], np.int64)
        moduli[view.discarded != 0] = 0
        return moduli

    def _tokens_before(self, view: StepView, prev: PrevStep, modulus: np.ndarray) -> np.ndarray:
        """[R, 1 + K] int32: the token before each one to draw, of the constrained rows."""
        width = 1 + self._setup.sizes.drafts
        first = view.query_start[1:, None] - 1 - view.draft_lens[:, None]
        place = np.minimum(first + np.arange(width), view.query_start[1:, None] - 1)
        before: np.ndarray = host_input_ids(view)[place]
        handed = (modulus > 0) & (view.prev_positions >= 0)
        if handed.any():
            tokens = self._handed(view.shape.step, prev, view.prev_positions[handed])
            before[handed] = tokens[view.prev_positions[handed]]
        return before

    def _handed(self, step: int, prev: PrevStep, needed: np.ndarray) -> np.ndarray:
        """[R, 1 + K] int32 in the last step's rows: its tokens and drafts. needed: rows."""
        landing = self._landing
        assert landing is not None, "the last step handed no drafts to the host"
        self._device.wait_host(self._landed, edges.DRAFTS_LANDED, step=step)
        expect: list[Owner | None] = [None] * len(prev.requests)
        for row in needed.tolist():
            expect[row] = (prev.requests[row], prev.step)
        tokens, *drafts = (buffer.read(len(expect), expect=expect) for buffer in landing)
        self._hand_off.taken(landing)
        self._landing = None
        return np.concatenate([tokens[:, None], *drafts], axis=1)

    def send(self, view: StepView, outputs: StepOutputs) -> None:
        """The drafter is issued: tokens and drafts start their way, if a row will need them."""
        self._landing = None
        if not self._moduli(view).any():
            return
        step, rows = view.shape.step, view.shape.rows
        self._landing = self._hand_off.landing()
        self._device.record(self._compute, self._proposed)
        self._device.wait_stream(
            self._stream, self._proposed, edges.DRAFTS_COPY_AFTER_DRAFTER, step=step
        )
        sources = (("next_token", outputs.next_token), ("drafts", outputs.drafts))
        for target, (name, source) in zip(self._landing, sources, strict=False):
            self._device.download(self._stream, target, source, name, step=step, rows=rows)
        self._device.record(self._stream, self._landed)

    def release(self, step: int) -> None:
        """The last step's outputs are about to be freed."""
        self._device.wait_stream(self._compute, self._landed, edges.DRAFTS_RELEASE, step=step)


def allowed(
    before: np.ndarray,  # [R, 1 + K] int32
    modulus: np.ndarray,  # [R] int64
    vocab_size: int,
) -> np.ndarray:
    """[R, 1 + K, V] bool: token v may not follow p if (v - p) mod m is 0; m = 0 allows all."""
    by = modulus[:, None, None]
    distance = np.arange(vocab_size) - before[:, :, None].astype(np.int64)
    bits: np.ndarray = (by == 0) | (distance % np.maximum(by, 1) != 0)
    return bits


def packed(
    bits: np.ndarray,  # [R, 1 + K, V] bool
) -> np.ndarray:
    """[R, 1 + K, V] bool as [R, 1 + K, ceil(V / 32)] int32: bit v % 32 of word v // 32."""
    rows, columns, vocab_size = bits.shape
    padded = np.zeros((rows, columns, -(-vocab_size // WORD_BITS) * WORD_BITS), bool)
    padded[:, :, :vocab_size] = bits
    words: np.ndarray = np.packbits(padded, axis=-1, bitorder="little").view(np.int32)
    return words
