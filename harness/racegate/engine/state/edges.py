"""The orderings the engine keeps, by name (docs/mechanism.md#edges)."""

from __future__ import annotations

from racegate.history.edge import Edge
from racegate.scenario.settings import EngineSpec, TransferMode

ROW_TABLES = ("block_table_cpu", "state_table_cpu", "temperature_cpu", "seed_cpu")
INPUTS = (
    "input_ids_cpu",
    "query_start_cpu",
    "computed_host_cpu",
    "accepted_host_cpu",
    "prev_positions_cpu",
    "computed_source_cpu",
    "count_source_cpu",
    "prev_scheduled_cpu",
    "prev_draft_lens_cpu",
    "draft_lens_cpu",
    "discarded_cpu",
    "backup_token_cpu",
    "is_decode_cpu",
    "logit_index_cpu",
    "request_index_cpu",
    "accept_target_cpu",
    "common_prefix_cpu",
    "window_table_cpu",
    "anchor_cpu",
    "migrate_source_cpu",
    "migrate_window_cpu",
    "migrate_target_cpu",
    "migrate_offset_cpu",
)

ZERO_LISTS = ("zero_list_cpu", "zero_state_list_cpu")
POSTPROCESS = ("state_table_cpu", "scheduled_cpu", "column_cpu")
PLANNED = ("positions_gpu", "seq_lens_gpu", "slot_mapping_gpu")

INPUT_PREP_GUARD = Edge(
    name="input-prep-guard",
    before="h2d:* of the previous step's input preparation",
    after="the host rewriting pinned inputs and row tables",
    buffers=INPUTS + ROW_TABLES + ZERO_LISTS,
    reason="a pinned source rewritten under a pending copy reaches the device rewritten",
    first=("h2d:*",),
    second=("host:*",),
)
POSTPROCESS_GUARD = Edge(
    name="postprocess-guard",
    before="h2d:boundary_table, h2d:scheduled and h2d:column, behind the previous step's forward",
    after="the host moving and rewriting rows of those tables",
    buffers=POSTPROCESS,
    reason="the previous step's states would be kept in blocks of the next step's rows",
    first=("h2d:boundary_table", "h2d:scheduled", "h2d:column"),
    second=("host:*",),
)
PLAN_AFTER_COUNTS = Edge(
    name="plan-after-counts",
    before="kernel:correct_computed and the uploads of lengths and block tables",
    after="kernel:positions and kernel:slot_mapping on the plan stream",
    buffers=("computed_gpu", "query_start_gpu", "block_table_gpu", *PLANNED),
    reason="positions and slots would be built from counts that are not corrected yet",
    second=("kernel:positions", "kernel:slot_mapping"),
)
FORWARD_AFTER_PLAN = Edge(
    name="forward-after-plan",
    before="kernel:slot_mapping on the plan stream",
    after="the forward pass on the compute stream, and the next step's uploads",
    buffers=("query_start_gpu", "block_table_gpu", "computed_gpu", *PLANNED),
    reason="the forward pass would run with the previous step's positions and slots",
    first=("kernel:positions", "kernel:slot_mapping"),
)
COUNT_COPY_AFTER_KERNEL = Edge(
    name="count-copy-after-kernel",
    before="kernel:next_token",
    after="d2h:valid_count on the counts stream",
    buffers=("valid_count_gpu",),
    reason="the copy stream would read the count before the kernel wrote it",
    first=("kernel:*",),
    second=("d2h:valid_count",),
)
VALID_COUNT_LANDED = Edge(
    name="valid-count-landed",
    before="d2h:valid_count",
    after="the host's deferred correction",
    buffers=("valid_count_cpu",),
    reason="the host would correct its mirrors with a count that has not landed",
    first=("d2h:valid_count",),
    second=("host:*",),
)
COUNT_RELEASE = Edge(
    name="count-release",
    before="d2h:valid_count on the counts stream",
    after="free:valid_count on the compute stream",
    buffers=("valid_count_gpu",),
    reason="the compute stream would reuse the memory while the copy still reads it",
    first=("d2h:valid_count",),
    second=("free:*",),
)
ACCEPTED_LANDED = Edge(
    name="accepted-landed",
    before="d2h:accepted_counts",
    after="the host reading accepted counts",
    buffers=("accepted_counts_cpu",),
    reason="the host would pick recurrent state columns with counts that have not landed",
    first=("d2h:accepted_counts",),
    second=("host:*",),
)
OUTPUT_COPY_AFTER_STEP = Edge(
    name="output-copy-after-step",
    before="kernel:sample",
    after="d2h:sampled on the output stream",
    buffers=("sampled_gpu",),
    reason="the copy stream would read the tokens before the sampler wrote them",
    first=("kernel:*", "graph:*"),
    second=("d2h:sampled",),
)
OUTPUT_LANDED = Edge(
    name="output-landed",
    before="d2h:sampled",
    after="the host processing the step's output, and the memory of the tokens being freed",
    buffers=("sampled_cpu", "sampled_gpu"),
    reason="the scheduler would process tokens that have not landed",
    first=("d2h:sampled",),
    second=("host:*", "free:*"),
)

_POOLS = ("kv.*", "draft_kv", "state.*", "conv.*")

SAVE_AFTER_FORWARD = Edge(
    name="save-after-forward",
    before="the forward pass and the drafter of a prefill chunk",
    after="d2h:save.* on the save stream",
    buffers=_POOLS,
    reason="the store would keep states from before the chunk, for a later hit to go on from",
    second=("d2h:save.*",),
)
REUSE_AFTER_SAVE = Edge(
    name="reuse-after-save",
    before="d2h:save.* on the save stream",
    after="the compute stream writing blocks that were given back, and loads from what was saved",
    buffers=(*_POOLS, "saved_*"),
    reason="the store would keep what the blocks' next owner writes",
    first=("d2h:save.*",),
)
LOAD_AFTER_RELEASE = Edge(
    name="load-after-release",
    before="work in flight of the blocks' last owner, and their zeroing",
    after="h2d:load.* on the load stream",
    buffers=_POOLS,
    reason="what was loaded would be overwritten by the last owner's step, or zeroed",
    second=("h2d:load.*",),
)
FORWARD_AFTER_LOAD = Edge(
    name="forward-after-load",
    before="h2d:load.* on the load stream",
    after="state migrations and the forward pass on the compute stream",
    buffers=_POOLS,
    reason="the request would go on from what the blocks held before",
    first=("h2d:load.*",),
)
EVICT_AFTER_SAVE = Edge(
    name="evict-after-save",
    before="d2h:save.* on the save stream",
    after="the host giving memory of saved prefixes back",
    buffers=("saved_*_cpu",),
    reason="a prefix would be saved into memory that is something else's by then",
    first=("d2h:save.*",),
    second=("host:evict",),
)
EVICT_AFTER_LOAD = Edge(
    name="evict-after-load",
    before="h2d:load.* on the load stream",
    after="the host giving memory of saved prefixes back",
    buffers=("saved_*_cpu",),
    reason="a request would be filled with what the memory holds next",
    first=("h2d:load.*",),
    second=("host:evict",),
)
SAVE_POSTED = Edge(
    name="save-posted",
    before="the forward pass and the drafter of a prefill chunk",
    after="the host posting d2h:save.* to a NIC, which waits for nothing",
    buffers=_POOLS,
    reason="the store would keep states from before the chunk, for a later hit to go on from",
    second=("d2h:save.*",),
)
SAVE_CONFIRMED = Edge(
    name="save-confirmed",
    before="d2h:save.* of a thread or a NIC",
    after="what the host issues on the blocks' next owner, loads of what was saved, its eviction",
    buffers=(*_POOLS, "saved_*"),
    reason="the store would keep what the blocks' next owner writes",
    first=("d2h:save.*",),
)
LOAD_POSTED = Edge(
    name="load-posted",
    before="work in flight of the blocks' last owner, and their zeroing",
    after="the host posting h2d:load.* to a NIC, which waits for nothing",
    buffers=_POOLS,
    reason="what was loaded would be overwritten by the last owner's step, or zeroed",
    second=("h2d:load.*",),
)
LOAD_CONFIRMED = Edge(
    name="load-confirmed",
    before="h2d:load.* of a thread or a NIC",
    after="the host issuing state migrations and the forward pass",
    buffers=_POOLS,
    reason="the request would go on from what the blocks held before",
    first=("h2d:load.*",),
)

DRAFTS_COPY_AFTER_DRAFTER = Edge(
    name="drafts-copy-after-drafter",
    before="kernel:draft*",
    after="d2h:next_token and d2h:drafts on the drafts stream",
    buffers=("next_token_gpu", "drafts_gpu"),
    reason="the copies would read what is there before the sampler and the drafter wrote it",
    second=("d2h:next_token", "d2h:drafts"),
)
DRAFTS_LANDED = Edge(
    name="drafts-landed",
    before="d2h:next_token, d2h:drafts and d2h:draft_weights",
    after="the host reading them, to build grammar masks or to hand them on",
    buffers=("next_token_cpu", "drafts_cpu", "draft_weights_cpu"),
    reason="the host would go on with drafts that have not landed, or with those of another step",
    first=("d2h:next_token", "d2h:drafts", "d2h:draft_weights"),
    second=("host:*",),
)
DRAFTS_RELEASE = Edge(
    name="drafts-release",
    before="d2h:next_token and d2h:drafts on the drafts stream",
    after="free:next_token and free:drafts on the compute stream",
    buffers=("next_token_gpu", "drafts_gpu"),
    reason="the compute stream would reuse the memory while the copies still read it",
    first=("d2h:next_token", "d2h:drafts"),
    second=("free:*",),
)
MASK_GUARD = Edge(
    name="mask-guard",
    before="h2d:mask of an earlier step, behind its forward pass",
    after="the host rewriting the pinned masks",
    buffers=("mask_cpu",),
    reason="an earlier step would be masked for the tokens of this one",
    first=("h2d:mask",),
    second=("host:*",),
)

POOL_PLACE_REUSE = Edge(
    name="pool-place-reuse",
    before="the last kernel of the step that had the place of the pool",
    after="the host writing another step's inputs there",
    buffers=("*_pool",),
    reason="kernels read pinned memory when they run: a late one would read the next step's",
    first=("kernel:*", "graph:*"),
    second=("host:*",),
)

PARTS_SENT = Edge(
    name="parts-sent",
    before="kernel:send.* of every rank, for a collective",
    after="the operation of any rank that takes the parts, and what is sent for the next but one",
    buffers=("sum.*", "gathered.*"),
    reason="a rank would go on with what another had sent for an earlier collective",
    first=("kernel:send.*", "kernel:all_*"),
    second=("kernel:all_*", "kernel:send.*"),
)

EDGES = (
    POSTPROCESS_GUARD,
    INPUT_PREP_GUARD,
    PLAN_AFTER_COUNTS,
    FORWARD_AFTER_PLAN,
    SAVE_AFTER_FORWARD,
    REUSE_AFTER_SAVE,
    LOAD_AFTER_RELEASE,
    FORWARD_AFTER_LOAD,
    EVICT_AFTER_SAVE,
    EVICT_AFTER_LOAD,
    SAVE_POSTED,
    SAVE_CONFIRMED,
    LOAD_POSTED,
    LOAD_CONFIRMED,
    COUNT_COPY_AFTER_KERNEL,
    VALID_COUNT_LANDED,
    COUNT_RELEASE,
    ACCEPTED_LANDED,
    OUTPUT_COPY_AFTER_STEP,
    OUTPUT_LANDED,
    DRAFTS_COPY_AFTER_DRAFTER,
    DRAFTS_LANDED,
    DRAFTS_RELEASE,
    MASK_GUARD,
    POOL_PLACE_REUSE,
    PARTS_SENT,
)

# Of transfers, those that each way to carry them keeps: another one's order the same pairs.
_CARRIED = {
    TransferMode.STREAMS: (
        SAVE_AFTER_FORWARD,
        REUSE_AFTER_SAVE,
        LOAD_AFTER_RELEASE,
        FORWARD_AFTER_LOAD,
        EVICT_AFTER_SAVE,
        EVICT_AFTER_LOAD,
    ),
    TransferMode.THREAD: (SAVE_AFTER_FORWARD, SAVE_CONFIRMED, LOAD_AFTER_RELEASE, LOAD_CONFIRMED),
    TransferMode.NIC: (SAVE_POSTED, SAVE_CONFIRMED, LOAD_POSTED, LOAD_CONFIRMED),
}


def edges_kept_by(engine: EngineSpec) -> tuple[Edge, ...]:
    """The orderings that an engine of these settings may keep."""
    kept = _CARRIED[engine.transfers]
    others = {edge for edges in _CARRIED.values() for edge in edges if edge not in kept}
    return tuple(edge for edge in EDGES if edge not in others)
