"""The orderings the engine keeps, by name. async_engine_mechanism sections 2.1 to 2.3."""

from __future__ import annotations

from racegate.edge import Edge

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
    "window_table_cpu",
    "scheduled_cpu",
    "column_cpu",
    "migrate_source_cpu",
    "migrate_window_cpu",
    "migrate_target_cpu",
    "migrate_offset_cpu",
)

INPUT_PREP_GUARD = Edge(
    name="input-prep-guard",
    before="h2d:* of the previous step's input preparation",
    after="the host rewriting pinned inputs and row tables",
    buffers=INPUTS + ROW_TABLES,
    reason="a pinned source rewritten under a pending copy reaches the device rewritten",
)
COUNT_COPY_AFTER_KERNEL = Edge(
    name="count-copy-after-kernel",
    before="kernel:next_token",
    after="d2h:valid_count on the counts stream",
    buffers=("valid_count_gpu",),
    reason="the copy stream would read the count before the kernel wrote it",
)
VALID_COUNT_LANDED = Edge(
    name="valid-count-landed",
    before="d2h:valid_count",
    after="the host's deferred correction",
    buffers=("valid_count_cpu",),
    reason="the host would correct its mirrors with a count that has not landed",
)
COUNT_RELEASE = Edge(
    name="count-release",
    before="d2h:valid_count on the counts stream",
    after="free:valid_count on the compute stream",
    buffers=("valid_count_gpu",),
    reason="the compute stream would reuse the memory while the copy still reads it",
)
ACCEPTED_LANDED = Edge(
    name="accepted-landed",
    before="d2h:accepted_counts",
    after="the host reading accepted counts",
    buffers=("accepted_counts_cpu",),
    reason="the host would pick recurrent state columns with counts that have not landed",
)
OUTPUT_COPY_AFTER_STEP = Edge(
    name="output-copy-after-step",
    before="kernel:sample",
    after="d2h:sampled on the output stream",
    buffers=("sampled_gpu",),
    reason="the copy stream would read the tokens before the sampler wrote them",
)
OUTPUT_LANDED = Edge(
    name="output-landed",
    before="d2h:sampled",
    after="the host processing the step's output, and the memory of the tokens being freed",
    buffers=("sampled_cpu", "sampled_gpu"),
    reason="the scheduler would process tokens that have not landed",
)

EDGES = (
    INPUT_PREP_GUARD,
    COUNT_COPY_AFTER_KERNEL,
    VALID_COUNT_LANDED,
    COUNT_RELEASE,
    ACCEPTED_LANDED,
    OUTPUT_COPY_AFTER_STEP,
    OUTPUT_LANDED,
)
