"""Historical designs of the accepted-count path, as variants that can be run like a fault
(docs/mechanism.md#landings).

A half-fix is right under one landing of the copy and wrong under another; the truth table measures
which (`racegate faults halffixes`). They are kept apart from the catalogue: two of the five are
right everywhere they can be used, so nothing may demand that they be found.
"""

from __future__ import annotations

from racegate.engine.rows.accepted_counts import DeviceCounts, PrivateCounts
from racegate.engine.rows.parts import RowParts
from racegate.faults.accepted import (
    HS,
    EarlyWaitCounts,
    LiveRowCounts,
    RemappedRowCounts,
    live_parts,
)
from racegate.faults.fault import Fault, FaultKind, the_parts

VARIANTS = (
    Fault(
        name="counts/early-wait",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm before #32951, vllm#51599",
        summary="counts land in live rows, awaited before the first row moves, read by current row",
        expect="nothing",
        scenarios=(),
        parts=lambda cache_mode: live_parts(EarlyWaitCounts),
    ),
    Fault(
        name="counts/live-rows",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm#32951 until #38556",
        summary="counts land in live rows, awaited behind the row moves, read by current row",
        expect="inputs.accepted",
        scenarios=(),
        parts=lambda cache_mode: live_parts(LiveRowCounts),
    ),
    Fault(
        name="counts/previous-position-gather",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm#38556 fix 2, vllm#51571",
        summary="counts land in live rows, awaited behind the row moves, read by previous row",
        expect="inputs.accepted",
        scenarios=(),
        parts=lambda cache_mode: live_parts(RemappedRowCounts),
    ),
    Fault(
        name="counts/device-authoritative",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm#45100",
        summary="counts never leave the device",
        expect="nothing without prefix caching",
        scenarios=(),
        parts=the_parts(rows=RowParts(count_path=lambda cache_mode: DeviceCounts)),
    ),
    Fault(
        name="counts/private-snapshot",
        number=0,
        kind=FaultKind.VARIANT,
        needs=HS,
        origin="vllm#51571",
        summary="counts land in a buffer of their step's own, in its row order",
        expect="nothing",
        scenarios=(),
        parts=the_parts(rows=RowParts(count_path=lambda cache_mode: PrivateCounts)),
    ),
)
