"""Faults of ranks that do not decide alike (docs/faults.md#ranks-that-disagree)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from racegate.device.protocol import DeviceBuffer, reads, updates
from racegate.engine.decode.drafter import Drafter
from racegate.engine.decode.parts import DecodeParts
from racegate.engine.rows.parts import RowParts
from racegate.engine.scheduling.parts import SchedulingParts
from racegate.engine.state import edges
from racegate.engine.state.buffers import StepOutputs
from racegate.engine.state.plan import PlanEntry, StepPlan
from racegate.engine.state.request_state import RequestState
from racegate.engine.state.setup import Setup
from racegate.engine.state.tracked import Finish, Tracked
from racegate.engine.state.view import StepView
from racegate.faults.fault import Fault, FaultKind, Need, the_parts
from racegate_kernels.backend import Backend
from racegate_kernels.numerics import Array

RANKS = (Need.RANKS,)
SPECULATING = (Need.SPECULATION, Need.RANKS)
# With so many tokens of a request a rank takes it for nearly done.
NEARLY_DONE = 12


def while_own_requests_last(states: Mapping[str, RequestState], plan: StepPlan) -> bool:
    """A rank joins the others until one of its requests is nearly done by its own counts."""
    going_on = all(state.computed < NEARLY_DONE for state in states.values())
    return plan.dummy_rows > 0 and going_on


def never(states: Mapping[str, RequestState], plan: StepPlan) -> bool:
    """A rank without requests returns early."""
    return False


def when_nothing_is_in_flight(tracked: Tracked) -> bool:
    """A request ends once its frames in flight have come, on a rank that keeps what it knows."""
    return tracked.finish is not Finish.UNFINISHED and tracked.in_flight == 0


class OwnDrafts(Drafter):
    """A drafter that proposes by what this rank alone has. made: who proposes elsewhere"""

    def __init__(self, setup: Setup, made: Drafter) -> None:
        self.setup = setup
        self.made = made
        self.cache = made.cache

    def targets(self, entries: list[PlanEntry]) -> np.ndarray:
        return self.made.targets(entries)

    def propose(self, view: StepView, sampled: DeviceBuffer, outputs: StepOutputs) -> None:
        """Other drafts than elsewhere. sampled: [R, 1 + K] int32"""
        self.made.propose(view, sampled, outputs)
        rows = view.shape.rows
        self.setup.kernels.launch_kernel(
            next_tokens_instead,
            {
                "drafts": updates(outputs.drafts, rows, own=view.owners),
                "next_token": reads(outputs.next_token, rows),
            },
            name="own_drafts",
            step=view.shape.step,
        )


def next_tokens_instead(
    kernels: Backend,
    drafts: Array,  # [R, K] int32, read and written
    next_token: Array,  # [R] int32
) -> None:
    """Each row's next token again, in the place of its first draft."""
    drafts[:, 0] = next_token


FAULTS = (
    Fault(
        name="parts-taken-before-sent",
        number=54,
        kind=FaultKind.ORDERING,
        needs=RANKS,
        origin="vllm#53402",
        summary="a rank takes what was sent for an earlier collective, as no wait is for senders",
        expect="sampled.conv",
        scenarios=("ranks-spread-heads", "ranks-idle-steps"),
        drops=frozenset({edges.PARTS_SENT.name}),
    ),
    Fault(
        name="idle-step-by-own-count",
        number=55,
        kind=FaultKind.ORDERING,
        needs=SPECULATING,
        origin="vllm#44185, #49027",
        summary="a rank leaves out an idle step by accepted counts that have not landed on it",
        expect="collectives",
        note="The others wait for it in the idle step, and meet it in its next one.",
        scenarios=("ranks-idle-steps",),
        drops=frozenset({edges.VALID_COUNT_LANDED.name}),
        parts=the_parts(rows=RowParts(joins_idle=while_own_requests_last)),
        holds={"ranks-idle-steps": ("d2h:valid_count.rank1@2 until host:correct.rank1@3",)},
    ),
    Fault(
        name="idle-step-left-out",
        number=56,
        kind=FaultKind.LOGIC,
        needs=RANKS,
        origin="vllm#43547, #51984",
        summary="a rank without requests returns early, and the others run a step without it",
        expect="collectives",
        scenarios=("ranks-idle-steps",),
        parts=the_parts(rows=RowParts(joins_idle=never)),
        ranks=frozenset({1}),
    ),
    Fault(
        name="finish-learned-late",
        number=57,
        kind=FaultKind.LOGIC,
        needs=RANKS,
        origin="vllm#45223",
        summary="a rank learns a step later than the others that a request has ended",
        expect="processed.delivered",
        note="It goes on with the request, and with another batch than the others.",
        scenarios=("ranks-spread-heads",),
        parts=the_parts(scheduling=SchedulingParts(finishes=when_nothing_is_in_flight)),
        ranks=frozenset({1}),
    ),
    Fault(
        name="drafts-of-one-rank",
        number=58,
        kind=FaultKind.LOGIC,
        needs=SPECULATING,
        origin="vllm#31154, #31307",
        summary="a rank proposes other drafts than the others, by what it alone has",
        expect="sampled.drafts",
        scenarios=("ranks-spread-heads", "ranks-idle-steps"),
        parts=the_parts(decode=DecodeParts(drafter=OwnDrafts)),
        ranks=frozenset({1}),
    ),
)
