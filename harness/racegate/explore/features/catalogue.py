"""The features, each with the reason why a runner goes wrong there, and the pairs that cannot be.

Most impossible pairs follow from what features need of the settings: prefixes are saved in offload
mode only, so a save never meets align mode. The few others are declared one by one.
"""

from __future__ import annotations

from racegate.explore.features import lives, prefixes, steps
from racegate.explore.features.facts import Facts
from racegate.explore.features.settings import K_VALUES, SETTINGS, Feature, Needs, only
from racegate.scenario.spec import GraphMode

_DRAFTED = only(k=K_VALUES[1:])
_DRAFTED_MORE = only(k=K_VALUES[2:])
_COLUMNS = only(cache_mode=("align", "offload"))
_ALIGN = only(cache_mode="align")
_OFFLOAD = only(cache_mode="offload")
_GRAPHS = only(graph_mode=str(GraphMode.FULL_DECODE))
_BEHIND = only(depth=("2", "3", "4"))


def _counted(name: str, counter: str, why: str, needs: Needs | None = None) -> Feature:
    return Feature(name=name, why=why, seen=lambda facts: facts.counted(counter), needs=needs or {})


HAPPENINGS = (
    # Sampling.
    Feature(
        name="random row",
        why="a seed or a position of another row changes the tokens",
        seen=lambda facts: any(True in found for found in steps.temperatures(facts)),
    ),
    Feature(
        name="greedy and random rows in a step",
        why="temperatures and seeds move with their rows, or do not",
        seen=lambda facts: any(len(found) > 1 for found in steps.temperatures(facts)),
    ),
    _counted(
        "constrained row", "masked_rows", "the mask is made from drafts that the device just wrote"
    ),
    Feature(
        name="constrained drafts",
        why="each draft has a mask of its own, from the draft before it",
        seen=steps.is_constrained,
        needs=_DRAFTED,
    ),
    # Batches.
    Feature(
        name="more than four rows",
        why="masks, grids and tables sized for a few rows",
        seen=lambda facts: steps.widest(facts) > 4,
    ),
    Feature(
        name="wait for a row",
        why="a row is taken over in the step after it was left",
        seen=steps.is_waiting_for_row,
    ),
    Feature(
        name="wait for blocks",
        why="admission starts from blocks that were freed one frame ago",
        seen=steps.is_waiting_for_blocks,
    ),
    Feature(
        name="row changes hands",
        why="what is still in flight for a row belongs to its last tenant",
        seen=steps.changes_hands,
    ),
    _counted("condense move", "condense_moves", "row tables move, results in flight do not"),
    _counted("reorder move", "reorder_moves", "two rows swap under a copy that names them by row"),
    Feature(
        name="rotation",
        why="three rows move in a circle: a swap in pairs is not enough",
        seen=lives.rotates,
    ),
    Feature(
        name="row entered after a high count",
        why="the count of the last tenant stands in the row",
        seen=steps.enters_row_of_high_count,
        needs=_DRAFTED,
    ),
    Feature(
        name="row moved after a high count",
        why="the count must follow its request",
        seen=steps.moves_with_high_count,
        needs=_DRAFTED,
    ),
    Feature(
        name="prefill beside verified drafts",
        why="one batch has rows with and without a last count",
        seen=steps.mixes_prefill_and_decode,
        needs=_DRAFTED,
    ),
    Feature(
        name="discarded row beside verified drafts",
        why="its sample is thrown away, and its neighbours' counts must not shift",
        seen=steps.discards_beside_drafts,
        needs=_DRAFTED,
    ),
    Feature(
        name="chunk of exactly 1 + k",
        why="a prefill row in the shape of a decode row, taken for one",
        seen=steps.is_chunk_of_width,
        needs=_DRAFTED | only(prefill_chunk_max="1 + k or more"),
    ),
    Feature(
        name="chunk of one token",
        why="a prefill row in the shape of a decode row without drafts",
        seen=steps.is_chunk_of_one,
    ),
    Feature(
        name="budget spent",
        why="the last row of the plan is cut, the next ones are left out",
        seen=steps.spends_budget,
    ),
    # Drafts.
    _counted("rejection", "rejections", "optimistic counts are corrected", _DRAFTED),
    Feature(
        name="some drafts accepted",
        why="the live state is neither the first slot nor the last",
        seen=steps.accepts_some,
        needs=_DRAFTED_MORE,
    ),
    _counted("every draft accepted", "full_accepts", "the last slot is the live state", _DRAFTED),
    _counted("every draft rejected", "full_rejects", "the first slot is the live state", _DRAFTED),
    Feature(
        name="accepted onto a block edge",
        why="the next token starts a block: slot and table column change together",
        seen=steps.accepts_onto_edge,
        needs=_DRAFTED,
    ),
    Feature(
        name="accepted onto a state boundary",
        why="the state to keep is the last slot of the step",
        seen=steps.accepts_onto_boundary,
        needs=_DRAFTED | _COLUMNS,
    ),
    Feature(
        name="state boundary within an accepted run",
        why="the state to keep is a slot in the middle",
        seen=steps.ends_column_within,
        needs=_DRAFTED | _COLUMNS,
    ),
    Feature(
        name="rejected back over a state boundary",
        why="the running state was sent to a column that is not begun",
        seen=steps.rejects_over_boundary,
        needs=_DRAFTED | _COLUMNS,
    ),
    Feature(
        name="rejected back over a block edge",
        why="a block holds nothing but rejected entries",
        seen=steps.rejects_over_edge,
        needs=_DRAFTED,
    ),
    Feature(
        name="row with a part of k drafts",
        why="rows of different widths; padded arrays differ from the plan",
        seen=steps.has_part_of_drafts,
        needs=_DRAFTED_MORE,
    ),
    Feature(
        name="rows with different numbers of drafts",
        why="offsets of rows are sums, not products",
        seen=steps.differs_in_drafts,
        needs=_DRAFTED,
    ),
    Feature(
        name="decode without drafts",
        why="a row that verifies nothing has count 1, whatever stood there",
        seen=steps.has_no_drafts,
        needs=_DRAFTED,
    ),
    Feature(
        name="no drafts after a high count",
        why="the last count must not be used again",
        seen=steps.has_no_drafts_after_accepts,
        needs=_DRAFTED,
    ),
    Feature(
        name="back after a pause with a high count",
        why="the row of the last count is somebody else's, or a hole",
        seen=steps.returns_after_accepts,
        needs=_DRAFTED,
    ),
    # Lengths.
    Feature(
        name="model_len_max reached",
        why="the last column of every table, and one more than a buffer holds",
        seen=lives.reaches_length,
    ),
    Feature(
        name="drafts cut by model_len_max",
        why="a drafter looks past the end, and the plan must not",
        seen=steps.is_clipped,
        needs=_DRAFTED,
    ),
    # Steps without requests.
    _counted("gap", "gaps", "a request is not scheduled: its row leaves and comes back"),
    Feature(
        name="idle step between steps",
        why="corrections happen with nothing to run them beside",
        seen=steps.is_idle_between,
    ),
    Feature(
        name="dummy step between steps",
        why="pad rows overwrite what the next step looks back at",
        seen=lives.is_dummy_between,
    ),
    # SeenPreempt, abort, stop.
    _counted("preemption", "preemptions", "blocks go at once, frames in flight go on"),
    Feature(
        name="preempted for want of blocks",
        why="the plan changes while it is made",
        seen=lives.is_preempted_for_blocks,
    ),
    Feature(
        name="preempted twice",
        why="frames of two incarnations are told apart by number only",
        seen=lives.is_preempted_twice,
    ),
    Feature(
        name="resumed with its outputs",
        why="what it delivered is computed again, as a prompt",
        seen=lives.resumes_with_outputs,
    ),
    Feature(
        name="two preempted in a step",
        why="the order in which they wait again",
        seen=lives.are_two_preempted,
    ),
    Feature(
        name="preempted in prefill",
        why="a chunk in flight delivers nothing, and its blocks are gone",
        seen=lives.is_preempted_in_prefill,
    ),
    _counted(
        "stale frame", "stale_frames", "it delivers tokens and must change no counter", _BEHIND
    ),
    Feature(
        name="stale frame ends a request",
        why="a request that waits to resume must not",
        seen=lives.ends_late,
        needs=_BEHIND,
    ),
    _counted("abort in flight", "aborts_in_flight", "results arrive for nobody"),
    Feature(
        name="abort while waiting",
        why="it has no row and no blocks, perhaps frames",
        seen=lives.is_aborted_waiting,
    ),
    _counted(
        "stop inside an accepted run",
        "stops_inside_run",
        "tokens behind the stop were accepted and are not delivered",
        _DRAFTED,
    ),
    Feature(
        name="ended by its stop token",
        why="the scheduler learns it a frame too late",
        seen=lives.ends_by_token,
    ),
    Feature(
        name="ended by stop_after",
        why="the same, wherever one wants it",
        seen=lives.ends_by_count,
    ),
    Feature(
        name="ended by its first token",
        why="a request that never decodes",
        seen=lives.ends_at_once,
    ),
    Feature(
        name="two ended by one frame",
        why="two holes at once: condensing moves two rows",
        seen=lives.are_two_ending,
    ),
    # Blocks and prefixes.
    Feature(
        name="block taken under a frame in flight",
        why="the last owner still writes",
        seen=prefixes.is_recycled_in_flight,
        needs=_BEHIND,
    ),
    Feature(
        name="blocks taken in consecutive steps",
        why="lists of new blocks of two steps are in flight",
        seen=prefixes.grows_in_a_row,
    ),
    Feature(
        name="block shared",
        why="one request's step writes where another reads",
        seen=prefixes.is_shared,
        needs=_ALIGN,
    ),
    _counted("prefix hit", "prefix_hits", "a request starts in the middle", _COLUMNS),
    Feature(
        name="two hits in a step",
        why="two loads, or two shares, of one prefix at once",
        seen=lambda facts: prefixes.hits_in_a_step(facts) > 1,
        needs=_COLUMNS,
    ),
    Feature(
        name="hit on all but one token",
        why="a prompt in the shape of a decode row",
        seen=prefixes.leaves_one_token,
        needs=_COLUMNS,
    ),
    Feature(
        name="hit after preemption",
        why="a second incarnation starts from what the first one kept",
        seen=prefixes.is_resumed_with_hit,
        needs=_COLUMNS,
    ),
    Feature(
        name="hit on a decoded state",
        why="the kept state was one of 1 + k slots",
        seen=prefixes.is_hit_behind_decode,
        needs=_ALIGN,
    ),
    Feature(
        name="evicted prefix comes back",
        why="the key must be gone with the block",
        seen=prefixes.is_evicted_and_missed,
        needs=_ALIGN,
    ),
    Feature(
        name="prompt continues a finished output",
        why="a second turn: its prefix was decoded, not computed as a prompt",
        seen=prefixes.is_continuing,
    ),
    _counted("state migration", "migrations", "the running state changes its column", _COLUMNS),
    _counted("save", "saves", "a copy reads blocks that the next step writes", _OFFLOAD),
    _counted("load", "loads", "a copy writes blocks that the next step reads", _OFFLOAD),
    Feature(
        name="load under a save in flight",
        why="both streams touch the host's copies",
        seen=prefixes.loads_under_save,
        needs=_OFFLOAD | _BEHIND,
    ),
    # Graphs.
    _counted(
        "graph replay", "graph_replays", "launches that nobody prepared for this step", _GRAPHS
    ),
    _counted("pad row", "padded_rows", "rows without a request run every kernel", _GRAPHS),
    Feature(
        name="pad row where a request stood",
        why="its tables and counts are still there",
        seen=steps.pads_where_request_stood,
        needs=_GRAPHS,
    ),
    Feature(
        name="full graph of two rows or more",
        why="the last row is live",
        seen=steps.fills_graph,
        needs=_GRAPHS,
    ),
    Feature(
        name="replays with a plain step between",
        why="buffers of the captured and the plain pass must agree",
        seen=steps.replays_between,
        needs=_GRAPHS,
    ),
    Feature(
        name="graphs of two sizes",
        why="what a larger replay left behind a smaller one",
        seen=steps.replays_sizes,
        needs=_GRAPHS,
    ),
)

FEATURES = SETTINGS + HAPPENINGS
FEATURE_BY_NAME = {feature.name: feature for feature in FEATURES}

# (first, second) -> why no run can have both.
IMPOSSIBLE: dict[tuple[str, str], str] = {}


def features_of(facts: Facts) -> frozenset[str]:
    """The names of all features that a run has."""
    return frozenset(feature.name for feature in FEATURES if feature.seen(facts))


def clashing_setting(first: Feature, second: Feature) -> str | None:
    """A setting of which two features need different values, if there is one."""
    return next(
        (
            name
            for name, values in first.needs.items()
            if not values & second.needs.get(name, values)
        ),
        None,
    )


def why_impossible(first: Feature, second: Feature) -> str | None:
    """Why two features cannot occur in one run; None if they can."""
    name = clashing_setting(first, second)
    if name is None:
        pair = (first.name, second.name)
        return IMPOSSIBLE.get(pair, IMPOSSIBLE.get(pair[::-1]))
    return (
        f"{first.name} needs {name} = {_values(first, name)}, "
        f"{second.name} needs {_values(second, name)}"
    )


def _values(feature: Feature, name: str) -> str:
    return " or ".join(sorted(feature.needs[name]))
