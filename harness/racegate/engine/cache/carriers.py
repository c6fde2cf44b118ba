"""What carries prefixes between the tiers, and who waits for whom: streams, a thread that copies,
or a NIC. docs/mechanism.md#carriers.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

from racegate.device.protocol import Event, Stream
from racegate.engine.state import edges
from racegate.engine.state.blocks import Key
from racegate.engine.state.lanes import Lane
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.setup import Setup
from racegate.scenario.settings import TransferMode


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSave:
    """A step's saves. keys: of what is saved; blocks, state_blocks: those that are read"""

    step: int
    keys: frozenset[Key]
    blocks: frozenset[int]
    state_blocks: frozenset[int]

    def concerns(self, plan: StepPlan, loads: Set[Key]) -> bool:
        """Whether a plan takes some of the blocks, or loads something of it."""
        return not (
            self.keys.isdisjoint(loads)
            and all(self.blocks.isdisjoint(entry.fresh_blocks) for entry in plan.taking)
            and all(self.state_blocks.isdisjoint(entry.fresh_state_blocks) for entry in plan.taking)
        )


class Carrier(Protocol):
    """loading, saving: the lanes of the copies. What issues them is given, and called once."""

    loading: Stream
    saving: Stream

    def free(self, plan: StepPlan, loads: Set[Key]) -> None:
        """From here on the blocks that a plan takes may be written, and what it loads be read.
        loads: these, and what host memory does not hold any longer
        """
        ...

    def forget(self, step: int) -> None:
        """From here on the host may write what was saved and given as a load."""
        ...

    def save(self, save: StepSave, copies: Callable[[], None], computed: Event) -> None:
        """Copies a step's prefixes, behind the event. What its plans do comes later."""
        ...

    def load(self, copies: Callable[[], None], ready: Event, *, step: int) -> None:
        """Copies behind the event; what is issued from here on comes behind the copies."""
        ...


class StreamCarrier:
    """Streams that wait for each other: the host never does."""

    def __init__(self, setup: Setup) -> None:
        device = setup.device
        self.loading, self.saving = device.stream(Lane.LOAD), device.stream(Lane.SAVE)
        self._device, self._compute = device, setup.compute
        self._saved, self._loaded = device.event("prefix_saved"), device.event("prefix_loaded")

    def free(self, plan: StepPlan, loads: Set[Key]) -> None:
        """The compute stream waits for all that is being saved, and loads wait for that."""
        self._device.wait_stream(self._compute, self._saved, edges.REUSE_AFTER_SAVE, step=plan.step)

    def forget(self, step: int) -> None:
        """The host waits for all that is being saved and loaded."""
        self._device.wait_host(self._saved, edges.EVICT_AFTER_SAVE, step=step)
        self._device.wait_host(self._loaded, edges.EVICT_AFTER_LOAD, step=step)

    def save(self, save: StepSave, copies: Callable[[], None], computed: Event) -> None:
        """The save stream waits. One event stands for all saves until then."""
        self._device.wait_stream(self.saving, computed, edges.SAVE_AFTER_FORWARD, step=save.step)
        copies()
        self._device.record(self.saving, self._saved)

    def load(self, copies: Callable[[], None], ready: Event, *, step: int) -> None:
        """The load stream waits, and then the compute stream."""
        self._device.wait_stream(self.loading, ready, edges.LOAD_AFTER_RELEASE, step=step)
        copies()
        self._device.record(self.loading, self._loaded)
        self._device.wait_stream(self._compute, self._loaded, edges.FORWARD_AFTER_LOAD, step=step)


class UnconfirmedSaves:
    """Saves that nobody has waited for, each with its completion."""

    def __init__(self) -> None:
        self._savings: list[tuple[StepSave, Event]] = []

    def add(self, saving: StepSave, done: Event) -> None:
        """One more."""
        self._savings.append((saving, done))

    def take(self, plan: StepPlan, loads: Set[Key]) -> list[Event]:
        """The completions that a plan needs; they are not kept any longer."""
        needed = [one for one in self._savings if one[0].concerns(plan, loads)]
        self._savings = [one for one in self._savings if one not in needed]
        return [done for _, done in needed]


class ThreadCarrier:
    """A thread takes jobs one after the other, waits for their events and copies. Nothing on the
    device waits for it: the host does, before it issues what needs a transfer.
    """

    def __init__(
        self, setup: Setup, unconfirmed: UnconfirmedSaves, *, loading: Lane, saving: Lane
    ) -> None:
        self._device = setup.device
        self.loading, self.saving = self._device.stream(loading), self._device.stream(saving)
        self._unconfirmed = unconfirmed
        self._loaded = self._device.event("prefix_loaded")

    def free(self, plan: StepPlan, loads: Set[Key]) -> None:
        """The host confirms the saves that stand in the way, late as it is."""
        for done in self._unconfirmed.take(plan, loads):
            self._device.wait_host(done, edges.SAVE_CONFIRMED, step=plan.step)

    def forget(self, step: int) -> None:
        """Saves were confirmed just now, and loads when they were made."""

    def save(self, save: StepSave, copies: Callable[[], None], computed: Event) -> None:
        """The thread waits. The completion is asked for when it is needed."""
        self._device.wait_stream(self.saving, computed, edges.SAVE_AFTER_FORWARD, step=save.step)
        self._start(save, copies)

    def _start(self, save: StepSave, copies: Callable[[], None]) -> None:
        copies()
        done = self._device.event(f"prefix_saved@{save.step}")
        self._device.record(self.saving, done)
        self._unconfirmed.add(save, done)

    def load(self, copies: Callable[[], None], ready: Event, *, step: int) -> None:
        """The thread waits, and then the host, before it issues the forward pass."""
        self._device.wait_stream(self.loading, ready, edges.LOAD_AFTER_RELEASE, step=step)
        self._fill(copies, step)

    def _fill(self, copies: Callable[[], None], step: int) -> None:
        copies()
        self._device.record(self.loading, self._loaded)
        self._device.wait_host(self._loaded, edges.LOAD_CONFIRMED, step=step)


class NicCarrier(ThreadCarrier):
    """A NIC reads and writes registered memory as soon as it is told, on a queue for each way. So
    the host posts a step's saves when it goes on with the next plan and has seen the step done.
    """

    def __init__(
        self, setup: Setup, unconfirmed: UnconfirmedSaves, *, loading: Lane, saving: Lane
    ) -> None:
        super().__init__(setup, unconfirmed, loading=loading, saving=saving)
        self._unposted: list[tuple[StepSave, Callable[[], None], Event]] = []

    def free(self, plan: StepPlan, loads: Set[Key]) -> None:
        """The host posts what the step before has left, and confirms what stands in the way."""
        for save, copies, computed in self._unposted:
            self._device.wait_host(computed, edges.SAVE_POSTED, step=save.step)
            self._start(save, copies)
        self._unposted.clear()
        super().free(plan, loads)

    def save(self, save: StepSave, copies: Callable[[], None], computed: Event) -> None:
        """Later: the step has only been issued."""
        self._unposted.append((save, copies, computed))

    def load(self, copies: Callable[[], None], ready: Event, *, step: int) -> None:
        """The host waits before it posts, and then for the completion."""
        self._device.wait_host(ready, edges.LOAD_POSTED, step=step)
        self._fill(copies, step)


def make_carrier(setup: Setup) -> Carrier:
    """What the scenario asks for."""
    return carrier_with(setup, UnconfirmedSaves())


def carrier_with(setup: Setup, unconfirmed: UnconfirmedSaves) -> Carrier:
    """The same. unconfirmed: knows which saves a plan has to wait for"""
    match setup.scenario.engine.transfers:
        case TransferMode.STREAMS:
            return StreamCarrier(setup)
        case TransferMode.THREAD:
            return ThreadCarrier(setup, unconfirmed, loading=Lane.COPIER, saving=Lane.COPIER)
        case TransferMode.NIC:
            return NicCarrier(setup, unconfirmed, loading=Lane.LOAD, saving=Lane.SAVE)
