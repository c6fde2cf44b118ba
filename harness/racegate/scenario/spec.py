"""Scenario: what happens in a run, as frozen data, loaded strictly from TOML.

A scenario says which requests arrive when, how many drafts are accepted, which events interfere and
how the engine is configured. It says nothing about the order of device work: that is a `Schedule`.
Semantics of every field: reference/DEFINITION.md.
"""

from __future__ import annotations

from enum import StrEnum

from racegate.scenario.errors import BadInputError
from racegate.scenario.expect import Expect
from racegate.scenario.strict import StrictStruct

# A hostile or mistyped file must not exhaust the machine: a run's memory and time are bounded by
# these.
STEPS_MAX = 20_000
REQUESTS_MAX = 2_000
EVENTS_MAX = 2_000
ROWS_MAX = 256
TOKENS_MAX = 1 << 17
DRAFT_LEN_MAX = 8
# Up to here the products that weigh a drawn draft stay below 2^64 (DEFINITION section 3).
DRAWN_VOCAB_MAX = 128
DEPTH_MAX = 4
STATE_BYTES_MAX = 1 << 28


class ScenarioError(BadInputError):
    """A scenario that cannot be used: names the file, the path in the file and the reason."""

    def __init__(self, source: str, path: str, reason: str) -> None:
        super().__init__(f"{source}: {path}: {reason}")
        self.source = source
        self.path = path
        self.reason = reason


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


class Cascade(StrEnum):
    """on: attention goes over the common prefix of a batch once for all rows, then over the rest of
    each; off wins where drafts are verified with steps in flight (scenario/config)
    """

    OFF = "off"
    ON = "on"


class EngineSpec(StrictStruct, frozen=True, kw_only=True):
    """Configuration both engines obey (DEFINITION section 5).

    draft_sampling: random draws the drafts of drafter mtp, each from weights of its own
    capture_rows: batch sizes for which a graph is captured; a step takes the smallest that fits
    """

    depth: int = 2
    draft_len_max: int = 3
    drafter: DrafterKind = DrafterKind.SCRIPTED
    draft_sampling: DraftSampling = DraftSampling.GREEDY
    cache_mode: CacheMode = CacheMode.NONE
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

    @property
    def draws_drafts(self) -> bool:
        """Whether drafts have weights that they were drawn from."""
        return self.draft_sampling is DraftSampling.RANDOM

    @property
    def has_cascade(self) -> bool:
        """Whether attention treats a common prefix by itself."""
        return self.cascade is Cascade.ON


class Image(StrictStruct, frozen=True, kw_only=True):
    """A part of a prompt whose tokens stand in a grid. start: the first one's place in the prompt
    grid: frames, rows and columns
    """

    start: int
    grid: tuple[int, int, int]

    @property
    def tokens(self) -> int:
        """How many tokens of the prompt it takes."""
        frames, rows, columns = self.grid
        return frames * rows * columns


class Request(StrictStruct, frozen=True, kw_only=True):
    """One request with everything explicit.

    accepts: per draft round, the accepted token count the scripted drafter aims at (cycled).
    stop_after: the delivered token that acts as end of sequence; the scheduler learns it only from
        the output.
    stop_token: the request ends with the first delivered token that equals it, as with an EOS id;
        this too the scheduler learns only from the output.
    grammar_modulus: m > 0 forbids tokens congruent modulo m to the one before them; 0 forbids none
    images: parts of the prompt whose three-dimensional positions are not those of text
    """

    name: str
    arrive: int
    prompt: tuple[int, ...]
    max_tokens: int
    stop_after: int | None = None
    stop_token: int | None = None
    accepts: tuple[int, ...] = (1,)
    temperature: float = 0.0
    seed: int = 0
    grammar_modulus: int = 0
    images: tuple[Image, ...] = ()


class Preempt(StrictStruct, frozen=True, kw_only=True, tag="preempt", tag_field="kind"):
    """The scheduler takes the request's blocks; it resumes later."""

    step: int
    request: str


class Abort(StrictStruct, frozen=True, kw_only=True, tag="abort", tag_field="kind"):
    """The client gives up, after the step was issued."""

    step: int
    request: str


class Gap(StrictStruct, frozen=True, kw_only=True, tag="gap", tag_field="kind"):
    """The request is not scheduled in `steps` steps from `step` on."""

    step: int
    request: str
    steps: int = 1


class Budget(StrictStruct, frozen=True, kw_only=True, tag="budget", tag_field="kind"):
    """Tokens the step may schedule."""

    step: int
    tokens: int


class DraftLimit(StrictStruct, frozen=True, kw_only=True, tag="draft_limit", tag_field="kind"):
    """At most `drafts` drafts for the request in this step."""

    step: int
    request: str
    drafts: int


class Rotate(StrictStruct, frozen=True, kw_only=True, tag="rotate", tag_field="kind"):
    """Request i takes the row of request i + 1, the last one that of the first."""

    step: int
    requests: tuple[str, ...]


class Dummy(StrictStruct, frozen=True, kw_only=True, tag="dummy", tag_field="kind"):
    """Nothing is scheduled; the engine runs a step of padding rows, as an idle rank does."""

    step: int
    rows: int = 1


Event = Preempt | Abort | Gap | Budget | DraftLimit | Rotate | Dummy


class Scenario(StrictStruct, frozen=True, kw_only=True):
    """A script both engines run, from `scenario_file.load`, or built directly and validated."""

    name: str
    title: str
    origin: str = ""
    seed: int = 1
    steps_max: int = 200
    model: ModelSpec = ModelSpec()
    engine: EngineSpec = EngineSpec()
    requests: tuple[Request, ...]
    events: tuple[Event, ...] = ()
    expect: Expect = Expect()
