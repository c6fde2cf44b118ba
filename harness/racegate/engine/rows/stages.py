"""What a step goes through on its way from the plan to its copies, and what each layout of the
batch has to bring: rows that move are here, slots that do not in `engine/slots`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from racegate.device.protocol import DeviceBuffer
from racegate.engine.cache.align_cache import Columns
from racegate.engine.cache.fresh_blocks import BlockZeroing
from racegate.engine.cache.store import NoStore, PrefixStore
from racegate.engine.decode.draft_weights import DraftWeights
from racegate.engine.decode.drafter import Drafter
from racegate.engine.decode.grammar import GrammarMasks, NoGrammarMasks
from racegate.engine.decode.sampling import Sampling
from racegate.engine.model.cascade import CommonPrefix
from racegate.engine.model.graphs import ForwardPass
from racegate.engine.model.model import Model
from racegate.engine.rows.accepted_counts import AcceptedCounts
from racegate.engine.rows.input_prep import InputPrep
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.plan import StepPlan
from racegate.engine.state.request_state import RequestState
from racegate.engine.state.view import PrevStep, StepView


class Batch(ABC):
    """Who stands where. unmet_events: rotations without effect"""

    def __init__(self) -> None:
        self._states: dict[str, RequestState] = {}
        self.unmet_events: list[str] = []

    @property
    @abstractmethod
    def row_of(self) -> Mapping[str, int]:
        """The row of each request in the step's batch."""

    @property
    def states(self) -> Mapping[str, RequestState]:
        """The host's mirrors, also of requests that skip a step."""
        return self._states

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Requests by row."""

    def tables(self) -> dict[str, np.ndarray]:
        """[R, C] int32 each: the host's block tables by row, where it has them."""
        return {}

    def slots(self) -> tuple[int, ...]:
        """The slot of each row, where there are slots."""
        return ()

    @abstractmethod
    def clear_tables(self) -> None:
        """Before the first request enters: no row holds a block."""

    @abstractmethod
    def update(self, plan: StepPlan, prev: PrevStep) -> None:
        """Requests leave and enter: rows and mirrors follow the plan. Who leaves is forgotten by
        the previous step too.
        """

    @abstractmethod
    def move(self, plan: StepPlan) -> None:
        """The step's rows get their order."""


class Guard(Protocol):
    """What keeps the host from rewriting what the device still reads."""

    def wait(self, plan: StepPlan) -> None:
        """The host is about to write a step's inputs."""
        ...

    def staged(self, step: int) -> None:
        """The uploads of a step's inputs are issued."""
        ...

    def staged_idle(self) -> None:
        """Those of an idle step are."""
        ...

    def issued(self) -> None:
        """Everything that a step reads its inputs with is issued."""
        ...


class Correction:
    """How the host learns what its optimism was worth: not at all, where its mirrors stay as
    optimistic as the scheduler.
    """

    def send(self, view: StepView, outputs: StepOutputs) -> None:
        """A step's counts are issued."""

    def correct(self, step: int, prev: PrevStep) -> None:
        """The host's mirrors become exact."""

    def release(self, step: int) -> None:
        """The last step's outputs are about to be given back."""


class Carry:
    """How the results of a step come to the next one: they stay where they are, in the step's own
    row order, and the next step reaches them through the previous rows.
    """

    def note(self, accepted: DeviceBuffer) -> None:
        """The counts to hand on are issued. accepted: [R] int32"""

    def keep(self, view: StepView, outputs: StepOutputs) -> None:
        """They are issued, drafts included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutStages:
    """Who stands where, and what that asks of the host and the device."""

    batch: Batch
    guard: Guard
    correction: Correction
    carry: Carry


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages(LayoutStages):
    """What a step goes through on its way from the plan to its copies."""

    count_path: AcceptedCounts
    columns: Columns
    prefix: CommonPrefix
    fresh: BlockZeroing
    store: PrefixStore | NoStore
    prep: InputPrep
    forward: ForwardPass
    model: Model
    sampling: Sampling
    grammar_masks: GrammarMasks | NoGrammarMasks
    draft_weights: DraftWeights
    drafter: Drafter
