"""How our own engine and the reference are configured: frozen data beside what happens.

A target that is not ours has settings of its own: it neither obeys these nor stores them. Semantics
of every field: reference/DEFINITION.md.
"""

from __future__ import annotations

from enum import StrEnum

from racegate.scenario.strict import StrictStruct

# A hostile or mistyped file must not exhaust the machine: a run's memory is bounded by these.
ROWS_MAX = 256
DEPTH_MAX = 4
RANKS_MAX = 8
STATE_BYTES_MAX = 1 << 28
# Up to here the products that weigh a drawn draft stay below 2^64 (DEFINITION section 3).
DRAWN_VOCAB_MAX = 128


class Numerics(StrEnum):
    """bfloat16: weights, residual stream and caches in bfloat16, arithmetic and recurrent states in
    float32. For measuring speed on CUDA: no reference computes it, so no oracle can judge it.
    """

    EXACT = "exact"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"

    @property
    def is_judged(self) -> bool:
        """Whether there is a reference to compare with."""
        return self is not Numerics.BFLOAT16


# What to do about numerics that nothing judges.
UNJUDGED = (
    "is for measuring speed on CUDA (racegate bench --device cuda): no reference computes it, so "
    "no oracle could judge a run; use exact or float32"
)


class LayerKind(StrEnum):
    MAMBA2 = "mamba2"
    GATED_DELTA = "gated_delta"
    ATTENTION = "attention"


class ModelPart(StrEnum):
    """What layers of production's models have beside the bare formulas (DEFINITION section 2)."""

    NORM_WEIGHTS = "norm_weights"
    BIASES = "biases"
    QK_NORM = "qk_norm"
    OUTPUT_GATE = "output_gate"
    GATED_NORM = "gated_norm"


class StateLife(StrEnum):
    """How long recurrent states last in float: long, for hundreds of tokens, as trained ones do."""

    SHORT = "short"
    LONG = "long"


class DrafterKind(StrEnum):
    NONE = "none"
    SCRIPTED = "scripted"
    MTP = "mtp"
    EXTRACT_HIDDEN_STATES = "extract_hidden_states"
    NGRAM = "ngram"

    @property
    def may_miss(self) -> bool:
        """Whether it may propose fewer drafts than were asked for, or none."""
        return self is DrafterKind.NGRAM


class DraftSampling(StrEnum):
    """random: drafts are drawn, and verified against what they were drawn from."""

    GREEDY = "greedy"
    RANDOM = "random"


class CacheMode(StrEnum):
    """What is kept of prefixes. align: states where chunks and accepted tokens reach a boundary;

    offload: the same in host memory; all: the state at the end of every block
    """

    NONE = "none"
    ALIGN = "align"
    OFFLOAD = "offload"
    ALL = "all"

    @property
    def has_columns(self) -> bool:
        """Whether states stand in columns of state_interval tokens."""
        return self is not CacheMode.NONE

    @property
    def splits_chunks(self) -> bool:
        """Whether a prefill chunk has to end where a state can be kept."""
        return self in (CacheMode.ALIGN, CacheMode.OFFLOAD)

    @property
    def publishes(self) -> bool:
        """Whether requests share the blocks of a prefix."""
        return self in (CacheMode.ALIGN, CacheMode.ALL)


class TransferMode(StrEnum):
    """What carries prefixes to host memory and back. thread: a thread that copies, and waits for
    events itself; nic: what waits for nothing, so that the host posts in time and asks when it is
    done. In both the host confirms each transfer late: when its blocks are needed.
    """

    STREAMS = "streams"
    THREAD = "thread"
    NIC = "nic"


class GraphMode(StrEnum):
    """full_decode: steps in which every row decodes with all its drafts replay a captured graph
    piecewise: steps that fit replay what lies between attention layers, and launch these
    """

    EAGER = "eager"
    FULL_DECODE = "full_decode"
    PIECEWISE = "piecewise"


class Zeroing(StrEnum):
    """fresh: blocks are zeroed on the device before the step that took them uses them."""

    NONE = "none"
    FRESH = "fresh"


class Planning(StrEnum):
    """side_stream: positions, lengths and slots are built on a stream of their own."""

    INLINE = "inline"
    SIDE_STREAM = "side_stream"


class Layout(StrEnum):
    """slots: a request keeps one place on the device while it runs, and each step's rows are laid
    out anew; rows: requests stand in the rows of a persistent batch, and move.
    """

    ROWS = "rows"
    SLOTS = "slots"


class OutputEvent(StrEnum):
    """When the copy of a step's tokens is issued: before_drafter lets the host go on earlier."""

    AFTER_DRAFTER = "after_drafter"
    BEFORE_DRAFTER = "before_drafter"


class ModelSpec(StrictStruct, frozen=True, kw_only=True):
    """Sizes and seed of the hybrid decoder (DEFINITION section 2).

    mrope_section: rotary pairs that turn with time, height and width; none: all by position
    kv_heads: of attention's keys and values, by default as many as heads
    key_heads: of gated_delta's queries and keys, likewise
    groups: of heads that share B and C in mamba2; rotary_size: the elements of a head that turn
    mlp_size: inner size of the gated MLP behind every layer, 0 for none; parts: what layers have
    """

    numerics: Numerics = Numerics.EXACT
    layers: tuple[LayerKind, ...] = (
        LayerKind.MAMBA2,
        LayerKind.GATED_DELTA,
        LayerKind.ATTENTION,
    )
    seed: int = 1
    vocab_size: int = 97
    hidden_size: int = 8
    heads: int = 2
    head_size: int = 4
    state_size: int = 4
    conv_width: int = 4
    mrope_section: tuple[int, ...] = ()
    kv_heads: int | None = None
    key_heads: int | None = None
    groups: int = 1
    rotary_size: int | None = None
    mlp_size: int = 0
    parts: tuple[ModelPart, ...] = ()
    state_life: StateLife = StateLife.SHORT

    @property
    def kv_head_count(self) -> int:
        """Heads of attention's keys and values."""
        return self.heads if self.kv_heads is None else self.kv_heads

    @property
    def key_head_count(self) -> int:
        """Heads of gated_delta's queries and keys."""
        return self.heads if self.key_heads is None else self.key_heads

    @property
    def rotary_width(self) -> int:
        """The elements of a head that turn with positions."""
        return self.head_size if self.rotary_size is None else self.rotary_size

    @property
    def has_mrope(self) -> bool:
        """Whether attention turns by three-dimensional positions."""
        return bool(self.mrope_section)


def not_spread(model: ModelSpec, ranks: int) -> dict[str, int]:
    """What a model has a number of that ranks cannot share out evenly, by the name of its key."""
    counts = {
        "heads": model.heads,
        "mlp_size": model.mlp_size,
        "kv_heads": model.kv_head_count,
        "key_heads": model.key_head_count,
        "groups": model.groups,
    }
    # One of these all ranks have; a norm over one group would need the values of all.
    common = {"kv_heads", "key_heads"}
    if ModelPart.GATED_NORM not in model.parts:
        common.add("groups")
    return {
        name: count
        for name, count in counts.items()
        if count % ranks and not (count == 1 and name in common)
    }


class Cascade(StrEnum):
    """on: attention goes over the common prefix of a batch once for all rows, then over the rest of
    each; off wins where drafts are verified with steps in flight (scenario/config)
    """

    OFF = "off"
    ON = "on"


class EngineSpec(StrictStruct, frozen=True, kw_only=True):
    """Configuration both engines obey (DEFINITION section 5).

    draft_sampling: random draws the drafts of drafter mtp, each from weights of its own
    transfers: of cache mode offload; prefixes_max: that host memory holds, without bound if none
    failing_loads: the steps whose loads a thread or a NIC tells to have failed
    capture_rows: batch sizes for which a graph is captured; a step takes the smallest that fits
    ranks: over so many the heads and the vocabulary are spread, each with an engine of its own
    """

    depth: int = 2
    draft_len_max: int = 3
    drafter: DrafterKind = DrafterKind.SCRIPTED
    draft_sampling: DraftSampling = DraftSampling.GREEDY
    cache_mode: CacheMode = CacheMode.NONE
    transfers: TransferMode = TransferMode.STREAMS
    prefixes_max: int | None = None
    failing_loads: tuple[int, ...] = ()
    rows_max: int = 8
    tokens_per_step_max: int = 64
    prefill_chunk_max: int = 64
    block_size: int = 4
    blocks: int = 128
    state_blocks: int = 64
    state_interval: int = 8
    model_len_max: int = 96
    graph_mode: GraphMode = GraphMode.EAGER
    capture_rows: tuple[int, ...] = (1, 2, 4, 8)
    zeroing: Zeroing = Zeroing.NONE
    planning: Planning = Planning.INLINE
    layout: Layout = Layout.ROWS
    output_event: OutputEvent = OutputEvent.AFTER_DRAFTER
    cascade: Cascade = Cascade.OFF
    ranks: int = 1

    @property
    def draws_drafts(self) -> bool:
        """Whether drafts have weights that they were drawn from."""
        return self.draft_sampling is DraftSampling.RANDOM

    @property
    def has_cascade(self) -> bool:
        """Whether attention treats a common prefix by itself."""
        return self.cascade is Cascade.ON
