"""How a step's results come to the next one in slots: the device leaves them there itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from racegate.device.protocol import DeviceBuffer, Use, reads, writes
from racegate.engine.rows.stages import Carry
from racegate.engine.slots.memory import SlotMemory
from racegate.engine.slots.parts import SlotParts
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array


class Stepped(NamedTuple):
    """What a step leaves, by row."""

    slot_of: Array  # [R] int32
    query_start: Array  # [R + 1] int32
    draft_lens: Array  # [R] int32
    computed: Array  # [R] int32, before the step
    emitted: Array  # [R] int32, tokens; 1 of a discarded row
    accepted: Array  # [R] int32, the counts to hand on
    next_token: Array  # [R] int32
    drafts: Array  # [R, K] int32


class Kept(NamedTuple):
    """Where it goes, by slot. Written."""

    slot_computed: Array  # [S] int32
    slot_accepted: Array  # [S] int32
    slot_last_token: Array  # [S] int32
    slot_drafts: Array  # [S, K] int32


def _carry_over(
    kernels: Backend, stepped: Stepped, kept: Kept, *, kept_slots: Callable[[Array], Array]
) -> None:
    """Computed counts advance by what stayed; the rest goes as it is."""
    slots, starts = kept_slots(stepped.slot_of), stepped.query_start
    stayed = starts[1:] - starts[:-1] - stepped.draft_lens - 1 + stepped.emitted
    kernels.scatter_rows(kept.slot_computed, slots, stepped.computed + stayed)
    kernels.scatter_rows(kept.slot_accepted, slots, stepped.accepted)
    kernels.scatter_rows(kept.slot_last_token, slots, stepped.next_token)
    kernels.scatter_rows(kept.slot_drafts, slots, stepped.drafts)


class SlotCarry(Carry):
    """They go to the slots at the step's end."""

    def __init__(self, setup: Setup, memory: SlotMemory, parts: SlotParts) -> None:
        self._setup = setup
        self._memory = memory
        self._kept_slots = parts.kept_slots
        self._accepted = setup.work.accepted

    def note(self, accepted: DeviceBuffer) -> None:
        self._accepted = accepted

    def keep(self, view: StepView, outputs: StepOutputs) -> None:
        """Counts, last tokens and drafts."""
        setup, rows, step = self._setup, view.shape.rows, view.shape.step
        inputs, memory = setup.inputs, self._memory
        mask, own = self._memory.owned(view)
        uses: dict[str, Use] = {
            "slot_of": reads(memory.slot_of.gpu, rows),
            "query_start": reads(inputs.query_start.gpu, rows + 1),
            "draft_lens": reads(inputs.draft_lens.gpu, rows),
            "computed": reads(setup.work.computed, rows),
            "emitted": reads(setup.work.accepted, rows),
            "accepted": reads(self._accepted, rows),
            "next_token": reads(outputs.next_token, rows),
            "drafts": reads(outputs.drafts, rows),
        }
        for name in ("computed", "accepted", "last_token", "drafts"):
            uses[f"slot_{name}"] = writes(getattr(memory.tables, name), mask=mask, own=own)
        setup.kernels.launch_kernel(
            _carry_over, uses, name="carry_over", step=step, kept_slots=self._kept_slots
        )
        memory.written(view)
