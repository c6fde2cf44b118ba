"""Expect: what a run has to exercise, by the names that the engine counts under."""

from __future__ import annotations

from racegate.scenario.strict import StrictStruct


class Expect(StrictStruct, frozen=True, kw_only=True):
    """What a run must have exercised, as minimum counts: a run that exercised nothing is not a
    pass.
    """

    overlapped_ops: int = 0
    row_moves: int = 0
    condense_moves: int = 0
    reorder_moves: int = 0
    rejections: int = 0
    full_accepts: int = 0
    full_rejects: int = 0
    zero_draft_rows: int = 0
    discarded_rows: int = 0
    preemptions: int = 0
    aborts_in_flight: int = 0
    pauses_in_flight: int = 0
    late_aborts: int = 0
    refusals: int = 0
    late_grammars: int = 0
    stale_frames: int = 0
    gaps: int = 0
    stops_inside_run: int = 0
    prefix_hits: int = 0
    migrations: int = 0
    boundary_hits: int = 0
    graph_replays: int = 0
    padded_rows: int = 0
    dummy_steps: int = 0
    zeroed_blocks: int = 0
    saves: int = 0
    loads: int = 0
    evictions: int = 0
    lost_loads: int = 0
    masked_rows: int = 0
    drawn_drafts: int = 0
    draft_weight_moves: int = 0
    missing_drafts: int = 0
    mrope_drifts: int = 0
    encoded_images: int = 0
    staged_writes: int = 0
    slot_reuses: int = 0
    cascade_steps: int = 0
