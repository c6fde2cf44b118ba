"""The seeded faults by name. Definitions: bug_catalogue section 7; the numbers are those of its
tables.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

import msgspec

from racegate.engine import edges
from racegate.engine.parts import EngineParts
from racegate.faults import variants
from racegate.scenario import CacheMode


class FaultKind(StrEnum):
    """ordering: wrong only under some timing; logic: always wrong; control: never wrong, must stay
    silent.
    """

    ORDERING = "ordering"
    LOGIC = "logic"
    CONTROL = "control"


class FaultError(Exception):
    """A fault name that does not exist; says which do."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One seeded defect.

    expect: the observable expected to differ first, as boundary.field
    scenarios: scenarios of the gate that show it
    holds: for an ordering fault, scenario -> the holds under which the wrong value appears there
    drops: names of edges that the device ignores
    parts: the engine parts with the defect, by cache mode
    """

    name: str
    kind: FaultKind
    origin: str
    summary: str
    expect: str
    scenarios: tuple[str, ...]
    holds: dict[str, tuple[str, ...]] = {}
    drops: frozenset[str] = frozenset()
    parts: Callable[[CacheMode], EngineParts] = lambda cache_mode: EngineParts()


def _without_prefix_cache(parts: EngineParts) -> Callable[[CacheMode], EngineParts]:
    """The defect only where no prefix cache makes the host's counts authoritative."""
    return lambda cache_mode: parts if cache_mode is CacheMode.NONE else EngineParts()


FAULTS: tuple[Fault, ...] = (
    Fault(
        name="accepted-read-before-copy",
        kind=FaultKind.ORDERING,
        origin="#1; vllm#36013",
        summary="no wait between the accepted-count copy and the host reading it",
        expect="inputs.accepted",
        scenarios=("all-rejected-all-accepted", "three-row-cycle"),
        holds={"all-rejected-all-accepted": ("d2h:accepted_counts@1 until host:prepare_inputs@2",)},
        drops=frozenset({edges.ACCEPTED_LANDED.name}),
        parts=lambda cache_mode: EngineParts(count_path=variants.snapshot_path),
    ),
    Fault(
        name="accepted-copy-after-row-move",
        kind=FaultKind.ORDERING,
        origin="#2; vllm#38556 fix 2",
        summary="counts land in live rows and are read by current row: fails when they land late",
        expect="inputs.accepted",
        scenarios=("finish-and-condense", "condense-and-reorder", "three-row-cycle"),
        holds={
            "finish-and-condense": ("d2h:accepted_counts@3 until host:condense@4",),
            "condense-and-reorder": ("d2h:accepted_counts@3 until host:condense@4",),
        },
        parts=lambda cache_mode: EngineParts(count_path=variants.live_row_path),
    ),
    Fault(
        name="accepted-double-remap",
        kind=FaultKind.ORDERING,
        origin="#3; vllm#51571, #51599, #53919",
        summary="counts land in live rows and are read by previous row: fails when they land early",
        expect="inputs.accepted",
        scenarios=(
            "prefill-to-decode-swap",
            "arrival-swaps-into-hole",
            "two-row-cycle",
            "three-row-cycle",
            "condense-and-reorder",
        ),
        parts=lambda cache_mode: EngineParts(count_path=variants.remapped_row_path),
    ),
    Fault(
        name="accepted-not-reset-first-spec",
        kind=FaultKind.LOGIC,
        origin="#18; vllm#45100 part A",
        summary="rows without previous drafts keep the count of the row's last tenant instead of 1",
        expect="inputs.accepted",
        scenarios=("add-into-hole", "prompt-k-plus-one"),
        parts=_without_prefix_cache(
            EngineParts(
                count_path=variants.drafted_path, select_accepted=variants.keep_old_accepted
            )
        ),
    ),
    Fault(
        name="backup-token-inflated-index",
        kind=FaultKind.LOGIC,
        origin="#17; vllm#38556 fix 1, #38419",
        summary="the backup token is looked up at a length that counts unverified drafts",
        expect="prepared.backup_token",
        scenarios=("chunked-prefill-backup-token", "extract-hidden-states"),
        parts=lambda cache_mode: EngineParts(backup_index=variants.inflated_by_drafts),
    ),
    Fault(
        name="correction-partial-fields",
        kind=FaultKind.LOGIC,
        origin="#22; vllm#32951 review",
        summary="counts are corrected, but positions, lengths and slots use the uncorrected copy",
        expect="inputs.seq_lens",
        scenarios=("steady-mixed-accepts", "all-rejected-all-accepted"),
        parts=lambda cache_mode: EngineParts(length_source=variants.uncorrected_lengths),
    ),
    Fault(
        name="correction-wrong-epoch",
        kind=FaultKind.LOGIC,
        origin="#21; vllm#38556, #55951, #42760",
        summary="the correction gathers the previous step's values by this step's rows",
        expect="inputs.computed",
        scenarios=("three-row-cycle", "finish-and-condense"),
        parts=lambda cache_mode: EngineParts(correction_rows=variants.current_rows),
    ),
    Fault(
        name="correction-wrong-epoch:row-zero",
        kind=FaultKind.LOGIC,
        origin="#21; vllm#42760",
        summary="the correction takes 'no previous row' for row 0",
        expect="inputs.computed",
        scenarios=("finish-and-condense", "chunked-prefill-backup-token"),
        parts=lambda cache_mode: EngineParts(correction_rows=variants.row_zero),
    ),
    Fault(
        name="pinned-input-overwrite",
        kind=FaultKind.ORDERING,
        origin="#4; vllm#24527, #25279, #31841",
        summary="pinned inputs are rewritten while the previous step's copies may still read them",
        expect="inputs.computed",
        scenarios=("finish-and-condense", "steady-mixed-accepts"),
        holds={"finish-and-condense": ("h2d:input_ids@3 until host:prepare_inputs@4",)},
        drops=frozenset({edges.INPUT_PREP_GUARD.name}),
    ),
    Fault(
        name="accepted-count-first-hole",
        kind=FaultKind.CONTROL,
        origin="#19 control; vllm#38372",
        summary="tokens counted up to the first -1 instead of all: equal on every legal row",
        expect="nothing",
        scenarios=(),
        parts=lambda cache_mode: EngineParts(accepted_count=variants.count_first_hole),
    ),
)


def find_fault(name: str) -> Fault:
    """The fault of that name. Raises FaultError."""
    for fault in FAULTS:
        if fault.name == name:
            return fault
    known = ", ".join(fault.name for fault in FAULTS)
    raise FaultError(f"no fault {name!r}; there are: {known}")
