"""Counters: what a run exercised. A run that exercised nothing is not a pass."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Counted while the engine runs; names as in scenario.Expect."""

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
    masked_rows: int = 0
