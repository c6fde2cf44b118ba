"""Scenario: what happens in a run, as frozen data, loaded strictly from TOML.

A scenario says which requests arrive when, how many drafts are accepted, which events interfere and how
the engine is configured. It says nothing about the order of device work: that is a `Schedule`.
Semantics of every field: reference/DEFINITION.md.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

import msgspec

from racegate.hashing import draw

# A hostile or mistyped file must not exhaust the machine: a run's memory and time are bounded by these.
FILE_BYTES_MAX = 1 << 20
STEPS_MAX = 2_000
REQUESTS_MAX = 256
EVENTS_MAX = 2_000
TOKENS_MAX = 1 << 16
DRAFT_LEN_MAX = 8
DEPTH_MAX = 4
STATE_BYTES_MAX = 1 << 28


class ScenarioError(Exception):
    """A scenario that cannot be used: names the file, the path in the file and the reason."""

    def __init__(self, source: str, path: str, reason: str) -> None:
        super().__init__(f"{source}: {path}: {reason}")
        self.source = source
        self.path = path
        self.reason = reason


class Numerics(StrEnum):
    EXACT = "exact"
    FLOAT32 = "float32"


class LayerKind(StrEnum):
    MAMBA2 = "mamba2"
    GATED_DELTA = "gated_delta"
    ATTENTION = "attention"


class DrafterKind(StrEnum):
    NONE = "none"
    SCRIPTED = "scripted"
    MTP = "mtp"
    EXTRACT_HIDDEN_STATES = "extract_hidden_states"


class CacheMode(StrEnum):
    NONE = "none"
    ALIGN = "align"


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all scenario data: immutable, slotted, keyword-only, strict on decode."""


class ModelSpec(Record, frozen=True, kw_only=True):
    """Sizes and seed of the hybrid decoder (DEFINITION section 2)."""

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


class EngineSpec(Record, frozen=True, kw_only=True):
    """Configuration both engines obey (DEFINITION section 5)."""

    depth: int = 2
    draft_len_max: int = 3
    drafter: DrafterKind = DrafterKind.SCRIPTED
    cache_mode: CacheMode = CacheMode.NONE
    rows_max: int = 8
    tokens_per_step_max: int = 64
    prefill_chunk_max: int = 64
    block_size: int = 4
    blocks: int = 128
    state_blocks: int = 64
    state_interval: int = 8
    model_len_max: int = 96


class Request(Record, frozen=True, kw_only=True):
    """One request with everything explicit.

    accepts: per draft round, the accepted token count the scripted drafter aims at (cycled).
    stop_after: the delivered token that acts as end of sequence; the scheduler learns it only from the output.
    """

    name: str
    arrive: int
    prompt: tuple[int, ...]
    max_tokens: int
    stop_after: int | None = None
    accepts: tuple[int, ...] = (1,)
    temperature: float = 0.0
    seed: int = 0


class Preempt(Record, frozen=True, kw_only=True, tag="preempt", tag_field="kind"):
    step: int
    request: str


class Abort(Record, frozen=True, kw_only=True, tag="abort", tag_field="kind"):
    step: int
    request: str


class Gap(Record, frozen=True, kw_only=True, tag="gap", tag_field="kind"):
    """The request is not scheduled in `steps` steps from `step` on."""

    step: int
    request: str
    steps: int = 1


class Budget(Record, frozen=True, kw_only=True, tag="budget", tag_field="kind"):
    step: int
    tokens: int


class DraftLimit(Record, frozen=True, kw_only=True, tag="draft_limit", tag_field="kind"):
    step: int
    request: str
    drafts: int


class Rotate(Record, frozen=True, kw_only=True, tag="rotate", tag_field="kind"):
    """Request i takes the row of request i + 1, the last one that of the first."""

    step: int
    requests: tuple[str, ...]


Event = Preempt | Abort | Gap | Budget | DraftLimit | Rotate


class Expect(Record, frozen=True, kw_only=True):
    """What a run must have exercised, as minimum counts: a run that exercised nothing is not a pass."""

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
    stale_frames: int = 0
    gaps: int = 0
    stops_inside_run: int = 0
    prefix_hits: int = 0
    migrations: int = 0
    boundary_hits: int = 0


class Scenario(Record, frozen=True, kw_only=True):
    """A script both engines run. Build one with `load` or `parse`, or directly in a test and `validate` it."""

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


class RequestEntry(Record, frozen=True, kw_only=True):
    """A request as a file writes it: give `prompt`, or `prompt_len` to have it drawn from the seed."""

    name: str
    arrive: int = 0
    prompt: tuple[int, ...] | None = None
    prompt_len: int | None = None
    shares: str | None = None
    shares_tokens: int = 0
    max_tokens: int = 8
    stop_after: int | None = None
    accepts: tuple[int, ...] | None = None
    temperature: float = 0.0
    seed: int | None = None


class TraceEntry(Record, frozen=True, kw_only=True):
    """Requests taken from a log with the columns TIMESTAMP, ContextTokens, GeneratedTokens."""

    file: str
    rows: str
    scale: int = 32
    step_ms: int = 500


class ScenarioFile(Record, frozen=True, kw_only=True):
    """The file as written, before prompts and accept counts are made explicit."""

    schema: int
    name: str
    title: str
    origin: str = ""
    seed: int = 1
    steps_max: int = 200
    model: ModelSpec = ModelSpec()
    engine: EngineSpec = EngineSpec()
    requests: tuple[RequestEntry, ...] = ()
    trace: TraceEntry | None = None
    events: tuple[Event, ...] = ()
    expect: Expect = Expect()


SCHEMA_VERSION = 1


def load(path: Path) -> Scenario:
    """The scenario in a TOML file. Raises ScenarioError with file, path in the file and reason."""
    source = str(path)
    try:
        size_bytes = path.stat().st_size
        if size_bytes > FILE_BYTES_MAX:
            raise ScenarioError(
                source, "$", f"{size_bytes} bytes, at most {FILE_BYTES_MAX} are read"
            )
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioError(source, "$", f"cannot be read: {error}") from error
    return parse(text, source=source, folder=path.parent)


def parse(text: str, *, source: str, folder: Path) -> Scenario:
    """The scenario in TOML text; a trace file is looked up relative to `folder`."""
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ScenarioError(source, "$", f"not TOML: {error}") from error
    if raw.get("schema") != SCHEMA_VERSION:
        raise ScenarioError(
            source, "$.schema", f"must be {SCHEMA_VERSION}, is {raw.get('schema')!r}"
        )
    try:
        file = msgspec.convert(raw, ScenarioFile, strict=True)
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at `")
        raise ScenarioError(source, path.rstrip("`") or "$", reason) from error
    return explicit(file, source=source, folder=folder)


def explicit(file: ScenarioFile, *, source: str, folder: Path) -> Scenario:
    """The file with every prompt, accept count and seed written out, validated. Raises ScenarioError."""
    if file.trace is not None:
        from racegate.request_log import entries_from_log

        if file.requests:
            raise ScenarioError(source, "$.trace", "give either requests or a trace, not both")
        entries = entries_from_log(file.trace, file=file, source=source, folder=folder)
    else:
        entries = file.requests
    requests: list[Request] = []
    for index, entry in enumerate(entries):
        _check_drawable(entry, source=source, path=f"$.requests[{index}]")
        requests.append(
            _request_from_entry(entry, index=index, file=file, before=requests, source=source)
        )
    scenario = Scenario(
        name=file.name,
        title=file.title,
        origin=file.origin,
        seed=file.seed,
        steps_max=file.steps_max,
        model=file.model,
        engine=file.engine,
        requests=tuple(requests),
        events=file.events,
        expect=file.expect,
    )
    return validate(scenario, source=source)


def _check_drawable(entry: RequestEntry, *, source: str, path: str) -> None:
    if (entry.prompt is None) == (entry.prompt_len is None):
        raise ScenarioError(source, path, "give exactly one of prompt and prompt_len")
    if entry.prompt_len is not None and not 1 <= entry.prompt_len <= TOKENS_MAX:
        raise ScenarioError(source, f"{path}.prompt_len", f"must be 1..{TOKENS_MAX}")
    if not 1 <= entry.max_tokens <= TOKENS_MAX:
        raise ScenarioError(source, f"{path}.max_tokens", f"must be 1..{TOKENS_MAX}")


def _request_from_entry(
    entry: RequestEntry, *, index: int, file: ScenarioFile, before: list[Request], source: str
) -> Request:
    path = f"$.requests[{index}]"
    vocab_size = max(1, file.model.vocab_size)
    if entry.prompt is not None:
        prompt = entry.prompt
    else:
        assert entry.prompt_len is not None
        label = f"prompt:{entry.name}"
        prompt = tuple(draw(file.seed, label, i) % vocab_size for i in range(entry.prompt_len))
    if entry.shares is not None:
        shared = next((request.prompt for request in before if request.name == entry.shares), None)
        if shared is None:
            raise ScenarioError(source, f"{path}.shares", f"no earlier request {entry.shares!r}")
        if not 0 < entry.shares_tokens <= min(len(shared), len(prompt)):
            raise ScenarioError(source, f"{path}.shares_tokens", "must fit both prompts")
        prompt = shared[: entry.shares_tokens] + prompt[entry.shares_tokens :]
    accepts = entry.accepts
    if accepts is None:
        # As many draws as rounds can occur: every round delivers at least one token.
        width = 1 + max(0, min(file.engine.draft_len_max, DRAFT_LEN_MAX))
        label = f"accepts:{entry.name}"
        accepts = tuple(
            1 + draw(file.seed, label, i) % width for i in range(min(64, entry.max_tokens))
        )
    return Request(
        name=entry.name,
        arrive=entry.arrive,
        prompt=prompt,
        max_tokens=entry.max_tokens,
        stop_after=entry.stop_after,
        accepts=accepts,
        temperature=entry.temperature,
        seed=draw(file.seed, f"seed:{entry.name}", 0) if entry.seed is None else entry.seed,
    )


def validate(scenario: Scenario, *, source: str = "scenario") -> Scenario:
    """The scenario itself if every value is possible; raises ScenarioError otherwise."""

    def require(condition: bool, path: str, reason: str) -> None:  # noqa: FBT001
        if not condition:
            raise ScenarioError(source, path, reason)

    require(bool(scenario.name) and scenario.name.isprintable(), "$.name", "must be printable text")
    require(1 <= scenario.steps_max <= STEPS_MAX, "$.steps_max", f"must be 1..{STEPS_MAX}")
    require(0 <= scenario.seed < 1 << 32, "$.seed", "must be 0..2^32-1")
    _validate_model(scenario.model, require)
    _validate_engine(scenario.engine, require)
    _validate_size(scenario, require)
    _validate_requests(scenario, require)
    _validate_events(scenario, require)
    for name in Expect.__struct_fields__:
        require(getattr(scenario.expect, name) >= 0, f"$.expect.{name}", "must not be negative")
    return scenario


Require = Callable[[bool, str, str], None]


def _validate_model(model: ModelSpec, require: Require) -> None:
    require(1 <= len(model.layers) <= 16, "$.model.layers", "must name 1..16 layers")
    require(0 <= model.seed < 1 << 32, "$.model.seed", "must be 0..2^32-1")
    require(2 <= model.vocab_size <= 4096, "$.model.vocab_size", "must be 2..4096")
    for name in ("hidden_size", "heads", "head_size", "state_size"):
        value = getattr(model, name)
        require(1 <= value <= 256, f"$.model.{name}", "must be 1..256")
    require(model.head_size % 2 == 0, "$.model.head_size", "must be even (rotary pairs)")
    require(2 <= model.conv_width <= 8, "$.model.conv_width", "must be 2..8")


def _validate_engine(engine: EngineSpec, require: Require) -> None:
    limits = {
        "depth": (1, DEPTH_MAX),
        "draft_len_max": (0, DRAFT_LEN_MAX),
        "rows_max": (1, 64),
        "tokens_per_step_max": (1, 4096),
        "prefill_chunk_max": (1, 4096),
        "block_size": (1, 256),
        "blocks": (2, 4096),
        "state_blocks": (2, 4096),
        "state_interval": (1, 1024),
        "model_len_max": (2, 8192),
    }
    for name, (low, high) in limits.items():
        value = getattr(engine, name)
        require(low <= value <= high, f"$.engine.{name}", f"must be {low}..{high}, is {value}")
    if engine.cache_mode is CacheMode.ALIGN:
        require(
            engine.state_interval % engine.block_size == 0,
            "$.engine.state_interval",
            f"must be a multiple of block_size = {engine.block_size} in align mode",
        )
        # A prefill chunk that cannot reach the next boundary is never planned: it would wait for ever.
        for name in ("tokens_per_step_max", "prefill_chunk_max"):
            value = getattr(engine, name)
            require(
                value >= engine.state_interval,
                f"$.engine.{name}",
                f"must be at least state_interval = {engine.state_interval} in align mode",
            )


def _validate_size(scenario: Scenario, require: Require) -> None:
    model, engine = scenario.model, scenario.engine
    state = model.heads * model.head_size * max(model.state_size, 2 * engine.block_size) * 4
    total_bytes = state * len(model.layers) * max(engine.blocks, engine.state_blocks)
    require(
        total_bytes <= STATE_BYTES_MAX,
        "$.model",
        f"states and caches would take {total_bytes} bytes, at most {STATE_BYTES_MAX}",
    )


def _validate_requests(scenario: Scenario, require: Require) -> None:
    engine = scenario.engine
    require(
        1 <= len(scenario.requests) <= REQUESTS_MAX, "$.requests", f"must hold 1..{REQUESTS_MAX}"
    )
    names = [request.name for request in scenario.requests]
    total = sum(len(request.prompt) + request.max_tokens for request in scenario.requests)
    require(total <= TOKENS_MAX, "$.requests", f"{total} tokens in all, at most {TOKENS_MAX}")
    for index, request in enumerate(scenario.requests):
        path = f"$.requests[{index}]"
        require(
            bool(request.name) and all(c.isalnum() or c in "_-." for c in request.name),
            f"{path}.name",
            "must be letters, digits, '_', '-' or '.'",
        )
        require(request.name not in names[:index], f"{path}.name", f"{request.name!r} stands twice")
        require(
            0 <= request.arrive < scenario.steps_max, f"{path}.arrive", "must be 0..steps_max-1"
        )
        require(len(request.prompt) >= 1, f"{path}.prompt", "must not be empty")
        require(
            all(0 <= token < scenario.model.vocab_size for token in request.prompt),
            f"{path}.prompt",
            f"tokens must be 0..{scenario.model.vocab_size - 1}",
        )
        require(request.max_tokens >= 1, f"{path}.max_tokens", "must be at least 1")
        length = len(request.prompt) + request.max_tokens
        require(
            length <= engine.model_len_max,
            path,
            f"prompt and max_tokens make {length} tokens, model_len_max is {engine.model_len_max}",
        )
        require(
            request.stop_after is None or 1 <= request.stop_after <= request.max_tokens,
            f"{path}.stop_after",
            "must be 1..max_tokens",
        )
        require(
            len(request.accepts) >= 1 and all(1 <= a <= 1 + DRAFT_LEN_MAX for a in request.accepts),
            f"{path}.accepts",
            f"must be counts of 1..{1 + DRAFT_LEN_MAX}",
        )
        require(0.0 <= request.temperature <= 16.0, f"{path}.temperature", "must be 0..16")
        require(0 <= request.seed < 1 << 32, f"{path}.seed", "must be 0..2^32-1")
        _validate_fits(request, scenario, path, require)


def _validate_fits(request: Request, scenario: Scenario, path: str, require: Require) -> None:
    """A request that could not be scheduled even alone would wait for ever."""
    engine = scenario.engine
    k = engine.draft_len_max
    # Unverified drafts of every step in flight are counted as accepted, and the drafter looks k further.
    in_flight = (engine.depth + 1) * (1 + k) + k
    tokens_most = min(len(request.prompt) + request.max_tokens + in_flight, engine.model_len_max)
    blocks = -(-tokens_most // engine.block_size)
    require(blocks < engine.blocks, f"{path}", f"needs {blocks} blocks, {engine.blocks - 1} exist")
    state_blocks = 1 + k
    if engine.cache_mode is CacheMode.ALIGN:
        state_blocks = -(-tokens_most // engine.state_interval) + k
    require(
        state_blocks < engine.state_blocks,
        f"{path}",
        f"needs {state_blocks} state blocks, {engine.state_blocks - 1} exist",
    )


def _validate_events(scenario: Scenario, require: Require) -> None:
    require(len(scenario.events) <= EVENTS_MAX, "$.events", f"at most {EVENTS_MAX} events")
    names = {request.name for request in scenario.requests}
    seen: set[tuple[type, int, str | None]] = set()
    for index, event in enumerate(scenario.events):
        path = f"$.events[{index}]"
        require(0 <= event.step < scenario.steps_max, f"{path}.step", "must be 0..steps_max-1")
        match event:
            case Preempt() | Abort() | Gap() | DraftLimit():
                require(event.request in names, f"{path}.request", f"no request {event.request!r}")
            case Rotate():
                require(
                    len(event.requests) >= 2
                    and len(set(event.requests)) == len(event.requests)
                    and set(event.requests) <= names,
                    f"{path}.requests",
                    "must be at least two different requests of the scenario",
                )
            case Budget():
                most = scenario.engine.tokens_per_step_max
                require(0 <= event.tokens <= most, f"{path}.tokens", f"must be 0..{most}")
        same = (type(event), event.step, getattr(event, "request", None))
        require(same not in seen, path, f"the same event stands twice for step {event.step}")
        seen.add(same)
        if isinstance(event, Gap):
            require(1 <= event.steps <= STEPS_MAX, f"{path}.steps", f"must be 1..{STEPS_MAX}")
        if isinstance(event, DraftLimit):
            require(
                0 <= event.drafts <= DRAFT_LEN_MAX, f"{path}.drafts", f"must be 0..{DRAFT_LEN_MAX}"
            )
