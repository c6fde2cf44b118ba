"""Faults of a batch in slots (docs/faults.md#slots-and-the-pinned-pool)."""

from __future__ import annotations

from racegate.engine.state import edges
from racegate.faults.fault import Fault, FaultKind, Need

FAULTS = (
    Fault(
        name="pool-place-reused-early",
        number=39,
        kind=FaultKind.ORDERING,
        needs=(Need.SPECULATION,),
        origin="vllm#53057, #54269",
        summary="the host rewrites a place of the pinned pool that a late kernel still reads",
        expect="sampled.drafts",
        note=(
            "The tokens' copy does not wait for the drafter, so they do not tell that its "
            "inputs have been read."
        ),
        scenarios=("slots-steady",),
        drops=frozenset({edges.POOL_PLACE_REUSE.name}),
        holds={"slots-steady": ("kernel:draft@4 until host:prepare_inputs@6",)},
    ),
)
