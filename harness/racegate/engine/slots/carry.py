"""How a step's results come to the next one in slots: the device leaves them there itself, and the
host, which never learns them, has nothing to correct.
"""

from __future__ import annotations

from racegate.device.protocol import DeviceBuffer
from racegate.engine.slots.memory import SlotMemory
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import PrevStep, StepView


class SlotCarry:
    """They go to the slots at the step's end."""

    def __init__(self, setup: Setup, memory: SlotMemory) -> None:
        self._memory = memory
        self._accepted = setup.work.accepted

    def note(self, accepted: DeviceBuffer) -> None:
        """The counts with which the next step finds its states. accepted: [R] int32"""
        self._accepted = accepted

    def keep(self, view: StepView, outputs: StepOutputs) -> None:
        """Counts, last tokens and drafts."""
        self._memory.carry_over(view, outputs, self._accepted)


class NoCorrection:
    """The host's mirrors stay as optimistic as the scheduler."""

    def send(self, view: StepView, outputs: StepOutputs) -> None:
        """Counts stay on the device."""

    def correct(self, step: int, prev: PrevStep) -> None:
        """Nothing to correct."""

    def release(self, step: int) -> None:
        """No copy reads the outputs."""
