"""StepPlan: what the scheduler tells the runner about one step."""

from __future__ import annotations

import msgspec

from racegate.engine.state.blocks import Key

REGIONS = 4


class PlanEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One request in one step.

    tokens: inputs scheduled, drafts included
    drafts: how many of them are drafts
    computed: tokens computed before the step, counting unverified drafts as accepted (optimistic)
    prefill_len: tokens known when the request was admitted
    blocks, state_blocks: its whole tables
    known_tokens: all known tokens, given when the runner cannot have them (new, resumed, not in the
        last plan)
    fresh_blocks, fresh_state_blocks: those of its blocks that this plan took from the free lists
    loaded: tokens of the saved prefix with which this plan admitted it (offload), else 0
    """

    request: str
    incarnation: int
    tokens: int
    drafts: int
    computed: int
    prefill_len: int
    blocks: tuple[int, ...]
    state_blocks: tuple[int, ...]
    known_tokens: tuple[int, ...] | None
    fresh_blocks: tuple[int, ...] = ()
    fresh_state_blocks: tuple[int, ...] = ()
    loaded: int = 0

    @property
    def is_decode(self) -> bool:
        """Whether all that was known at its admission has been computed."""
        return self.computed >= self.prefill_len

    @property
    def is_discarded(self) -> bool:
        """A prefill chunk that does not reach the last known token: its sample is thrown away."""
        return self.computed + self.tokens < self.prefill_len


class StepPlan(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One step. ended: requests finished or aborted since the last plan; preempted: in this
    iteration; dummy_rows: padding rows to run in an idle step
    lost: entries of requests whose load fails: they take their blocks for that alone
    saved: the prefixes that host memory is to hold, if it is bounded; settled: the last step whose
        output the scheduler knew
    """

    step: int
    entries: tuple[PlanEntry, ...]
    ended: tuple[str, ...]
    preempted: tuple[str, ...]
    dummy_rows: int = 0
    lost: tuple[PlanEntry, ...] = ()
    saved: frozenset[Key] | None = None
    settled: int = -1

    @property
    def taking(self) -> tuple[PlanEntry, ...]:
        """All that take blocks, and may load into them."""
        return (*self.entries, *self.lost)


def region(entry: PlanEntry, *, threshold: int) -> int:
    """0 decode, 1 short extend, 2 long extend, 3 prefill."""
    if entry.is_decode:
        return 0
    if entry.computed == 0:
        return 3
    return 1 if entry.tokens <= threshold else 2
