"""The features, each with the reason why a runner goes wrong there."""

from __future__ import annotations

from racegate.explore.features import lives, prefixes, steps
from racegate.explore.features.facts import RunFacts
from racegate.explore.features.settings import (
    BEHIND,
    CASCADE,
    COLUMNS,
    DRAFTED,
    DRAFTED_MORE,
    DRAWN,
    GRAPHS,
    MROPE,
    OFFLOAD,
    PIECEWISE,
    ROWS,
    SETTINGS,
    SHARED,
    SLOTS,
    WIDE_CHUNKS,
    counted,
    happening,
    only,
)

HAPPENINGS = (
    # Sampling.
    happening(
        "random row",
        "a seed or a position of another row changes the tokens",
        lambda facts: any(True in found for found in steps.temperatures(facts)),
    ),
    happening(
        "greedy and random rows in a step",
        "temperatures and seeds move with their rows, or do not",
        lambda facts: any(len(found) > 1 for found in steps.temperatures(facts)),
    ),
    counted(
        "constrained row", "masked_rows", "the mask is made from drafts that the device just wrote"
    ),
    happening(
        "constrained drafts",
        "each draft has a mask of its own, from the draft before it",
        steps.is_constrained,
        DRAFTED,
    ),
    # Batches.
    happening(
        "more than four rows",
        "masks, grids and tables sized for a few rows",
        lambda facts: steps.widest(facts) > 4,
    ),
    happening(
        "wait for a row",
        "a row is taken over in the step after it was left",
        steps.is_waiting_for_row,
    ),
    happening(
        "wait for blocks",
        "admission starts from blocks that were freed one frame ago",
        steps.is_waiting_for_blocks,
    ),
    happening(
        "row changes hands",
        "what is still in flight for a row belongs to its last request",
        steps.changes_hands,
    ),
    counted("condense move", "condense_moves", "row tables move, results in flight do not", ROWS),
    counted(
        "reorder move", "reorder_moves", "two rows swap under a copy that names them by row", ROWS
    ),
    happening(
        "rotation", "three rows move in a circle: swapping pairs is not enough", lives.rotates, ROWS
    ),
    counted(
        "slot taken again", "slot_reuses", "what is not staged anew is the last request's", SLOTS
    ),
    happening(
        "row entered after a high count",
        "the count of the last request stands in the row",
        steps.enters_row_of_high_count,
        DRAFTED,
    ),
    happening(
        "row moved after a high count",
        "the count must follow its request",
        steps.moves_with_high_count,
        DRAFTED,
    ),
    happening(
        "prefill beside verified drafts",
        "one batch has rows with and without a last count",
        steps.mixes_prefill_and_decode,
        DRAFTED,
    ),
    happening(
        "discarded row beside verified drafts",
        "its sample is thrown away, and its neighbours' counts must not shift",
        steps.discards_beside_drafts,
        DRAFTED,
    ),
    happening(
        "chunk of exactly 1 + k",
        "a prefill row in the shape of a decode row, taken for one",
        steps.is_chunk_of_width,
        WIDE_CHUNKS,
    ),
    happening(
        "chunk of one token",
        "a prefill row in the shape of a decode row without drafts",
        steps.is_chunk_of_one,
    ),
    happening(
        "budget spent",
        "the last row of the plan is cut, the next ones are left out",
        steps.spends_budget,
    ),
    # Drafts.
    counted("rejection", "rejections", "optimistic counts are corrected", DRAFTED),
    happening(
        "some drafts accepted",
        "the live state is neither the first slot nor the last",
        steps.accepts_some,
        DRAFTED_MORE,
    ),
    counted(
        "weights of a row that moved",
        "draft_weight_moves",
        "drafts are verified against what another row's were drawn from",
        DRAWN | ROWS,
    ),
    counted("every draft accepted", "full_accepts", "the last slot is the live state", DRAFTED),
    counted("every draft rejected", "full_rejects", "the first slot is the live state", DRAFTED),
    happening(
        "accepted onto a block edge",
        "the next token starts a block: slot and table column change together",
        steps.accepts_onto_edge,
        DRAFTED,
    ),
    happening(
        "accepted onto a state boundary",
        "the state to keep is the last slot of the step",
        steps.accepts_onto_boundary,
        DRAFTED | COLUMNS,
    ),
    happening(
        "state boundary within an accepted run",
        "the state to keep is a slot in the middle",
        steps.ends_column_within,
        DRAFTED | COLUMNS,
    ),
    happening(
        "rejected back over a state boundary",
        "the running state was sent to a column that is not begun",
        steps.rejects_over_boundary,
        DRAFTED | COLUMNS,
    ),
    happening(
        "rejected back over a block edge",
        "a block holds nothing but rejected entries",
        steps.rejects_over_edge,
        DRAFTED,
    ),
    happening(
        "row with a part of k drafts",
        "rows of different widths; padded arrays differ from the plan",
        steps.has_part_of_drafts,
        DRAFTED_MORE,
    ),
    happening(
        "rows with different numbers of drafts",
        "offsets of rows are sums, not products",
        steps.differs_in_drafts,
        DRAFTED,
    ),
    happening(
        "decode without drafts",
        "a row that verifies nothing has count 1, whatever stood there",
        steps.has_no_drafts,
        DRAFTED,
    ),
    happening(
        "no drafts after a high count",
        "the last count must not be used again",
        steps.has_no_drafts_after_accepts,
        DRAFTED,
    ),
    happening(
        "back after a pause with a high count",
        "the row of the last count is somebody else's, or a hole",
        steps.returns_after_accepts,
        DRAFTED,
    ),
    # Lengths.
    happening(
        "model_len_max reached",
        "the last column of every table, and one more than a buffer holds",
        lives.reaches_length,
    ),
    happening(
        "drafts cut by model_len_max",
        "a drafter looks past the end, and the plan must not",
        steps.is_clipped,
        DRAFTED,
    ),
    # Coordinates.
    happening(
        "coordinates corrected",
        "positions are corrected, and what stands beside them may not be",
        steps.corrects_coordinates,
        DRAFTED | BEHIND | MROPE | only(cache_mode=("none", "all"), cascade="off"),
    ),
    happening(
        "chunk ends within an image",
        "the next chunk begins where no coordinate is the position plus anything",
        steps.ends_within_image,
        MROPE,
    ),
    happening(
        "drafts behind an image",
        "a coordinate that is taken for a position names another token",
        steps.drafts_behind_image,
        DRAFTED | MROPE,
    ),
    # Steps without requests.
    counted("gap", "gaps", "a request is not scheduled: its row leaves and comes back"),
    happening(
        "idle step between steps",
        "corrections happen with nothing to run them beside",
        steps.is_idle_between,
    ),
    happening(
        "dummy step between steps",
        "pad rows overwrite what the next step looks back at",
        lives.is_dummy_between,
    ),
    # Preemption, abort, stop.
    counted("preemption", "preemptions", "blocks go at once, frames in flight go on"),
    happening(
        "preempted for want of blocks",
        "the plan changes while it is made",
        lives.is_preempted_for_blocks,
    ),
    happening(
        "preempted twice",
        "frames of two incarnations are told apart by number only",
        lives.is_preempted_twice,
    ),
    happening(
        "resumed with its outputs",
        "what it delivered is computed again, as a prompt",
        lives.resumes_with_outputs,
    ),
    happening(
        "two preempted in a step", "the order in which they wait again", lives.are_two_preempted
    ),
    happening(
        "preempted in prefill",
        "a chunk in flight delivers nothing, and its blocks are gone",
        lives.is_preempted_in_prefill,
    ),
    counted("stale frame", "stale_frames", "it delivers tokens and must change no counter", BEHIND),
    happening(
        "stale frame ends a request",
        "a request that waits to resume must not",
        lives.ends_late,
        BEHIND,
    ),
    counted("abort in flight", "aborts_in_flight", "results arrive for nobody"),
    happening(
        "abort while waiting",
        "it has no row and no blocks, perhaps frames",
        lives.is_aborted_waiting,
    ),
    counted(
        "stop inside an accepted run",
        "stops_inside_run",
        "tokens behind the stop were accepted and are not delivered",
        DRAFTED,
    ),
    happening(
        "ended by its stop token", "the scheduler learns it a frame too late", lives.ends_by_token
    ),
    happening("ended by stop_after", "the same, wherever one wants it", lives.ends_by_count),
    happening("ended by its first token", "a request that never decodes", lives.ends_at_once),
    happening(
        "two ended by one frame",
        "two holes at once: condensing moves two rows",
        lives.are_two_ending,
    ),
    # Blocks and prefixes.
    happening(
        "block taken under a frame in flight",
        "the last owner still writes",
        prefixes.is_recycled_in_flight,
        BEHIND,
    ),
    happening(
        "blocks taken in consecutive steps",
        "lists of new blocks of two steps are in flight",
        prefixes.grows_in_a_row,
    ),
    happening(
        "block shared", "one request's step writes where another reads", prefixes.is_shared, SHARED
    ),
    counted("prefix hit", "prefix_hits", "a request starts in the middle", COLUMNS),
    happening(
        "two hits in a step",
        "two loads, or two shares, of one prefix at once",
        lambda facts: prefixes.hits_in_a_step(facts) > 1,
        COLUMNS,
    ),
    happening(
        "hit on all but one token",
        "a prompt in the shape of a decode row",
        prefixes.leaves_one_token,
        COLUMNS,
    ),
    happening(
        "hit after preemption",
        "a second incarnation starts from what the first one kept",
        prefixes.is_resumed_with_hit,
        COLUMNS,
    ),
    happening(
        "hit on a decoded state",
        "the kept state was one of 1 + k slots",
        prefixes.is_hit_behind_decode,
        SHARED,
    ),
    happening(
        "evicted prefix comes back",
        "the key must be gone with the block",
        prefixes.is_evicted_and_missed,
        SHARED,
    ),
    happening(
        "prompt continues a finished output",
        "a second turn: its prefix was decoded, not computed as a prompt",
        prefixes.is_continuing,
    ),
    counted(
        "common prefix of several rows",
        "cascade_steps",
        "one row's table is read for all",
        CASCADE | SHARED,
    ),
    counted(
        "state migration", "migrations", "the running state changes its column", COLUMNS | ROWS
    ),
    counted("save", "saves", "a copy reads blocks that the next step writes", OFFLOAD),
    counted("load", "loads", "a copy writes blocks that the next step reads", OFFLOAD),
    counted("prefix evicted", "evictions", "its memory is given back under a copy", OFFLOAD),
    happening(
        "load under a save in flight",
        "both streams touch the host's copies",
        prefixes.loads_under_save,
        OFFLOAD | BEHIND,
    ),
    # Graphs.
    counted("graph replay", "graph_replays", "launches that nobody prepared for this step", GRAPHS),
    counted("pad row", "padded_rows", "rows without a request run every kernel", GRAPHS),
    happening(
        "pad row where a request stood",
        "its tables and counts are still there",
        steps.pads_where_request_stood,
        GRAPHS,
    ),
    happening("full graph of two rows or more", "the last row is live", steps.fills_graph, GRAPHS),
    happening(
        "replays with a plain step between",
        "buffers of the captured and the plain pass must agree",
        steps.replays_between,
        GRAPHS,
    ),
    happening(
        "graphs of two sizes",
        "what a larger replay left behind a smaller one",
        steps.replays_sizes,
        GRAPHS,
    ),
    happening(
        "prompt chunk in a replay",
        "rows of any length, whose phase the graph must read",
        steps.replays_chunk,
        PIECEWISE,
    ),
)

FEATURES = SETTINGS + HAPPENINGS
FEATURE_BY_NAME = {feature.name: feature for feature in FEATURES}


def features_of(facts: RunFacts) -> frozenset[str]:
    """The names of all features that a run has."""
    return frozenset(feature.name for feature in FEATURES if feature.seen(facts))
