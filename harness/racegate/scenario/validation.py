"""Validation: every value of a scenario is possible, and its size bounded, before anything runs."""

from __future__ import annotations

from collections.abc import Callable

from racegate.scenario.expect import Expect
from racegate.scenario.settings import (
    DEPTH_MAX,
    DRAWN_VOCAB_MAX,
    RANKS_MAX,
    ROWS_MAX,
    STATE_BYTES_MAX,
    UNJUDGED,
    CacheMode,
    EngineSpec,
    GraphMode,
    Layout,
    ModelSpec,
    not_spread,
)
from racegate.scenario.spec import (
    DRAFT_LEN_MAX,
    EVENTS_MAX,
    REQUESTS_MAX,
    STEPS_MAX,
    TOKENS_MAX,
    Abort,
    AnyScenario,
    Budget,
    DraftLimit,
    Dummy,
    Gap,
    OwnScenario,
    Preempt,
    Request,
    Rotate,
    Scenario,
    ScenarioBase,
    ScenarioError,
)
from racegate.scenario.untrusted.text import quoted

NAME_LENGTH_MAX = 200
LONG_NAME = f"at most {NAME_LENGTH_MAX} characters"
TEXT_LENGTH_MAX = 2_000
TOKENS_ANY = 1 << 31  # of a vocabulary that is not ours: as many as an int32 can name

Require = Callable[[bool, str, str], None]


def validate(scenario: AnyScenario, *, source: str = "scenario") -> AnyScenario:
    """The scenario itself if every value is possible: what happens, and the settings of our own
    engine with what happens on it, if it has any. Raises ScenarioError otherwise.
    """

    def require(condition: bool, path: str, reason: str) -> None:  # noqa: FBT001
        if not condition:
            raise ScenarioError(source, path, reason)

    if isinstance(scenario, OwnScenario):
        _validate_happening(scenario, scenario.model.vocab_size, require)
        _validate_model(scenario.model, require)
        _validate_engine(scenario.engine, require)
        _validate_size(scenario, require)
        _validate_layout(scenario, require)
        _validate_ranks(scenario, require)
        _validate_own_requests(scenario, require)
        _validate_own_events(scenario, require)
    else:
        _validate_happening(scenario, TOKENS_ANY, require)
        free = scenario.free_blocks
        require(free is None or free >= 1, "$.free_blocks", "must be at least 1")
        _validate_pauses(scenario, require)
    return scenario


def _validate_happening(scenario: ScenarioBase, vocab_size: int, require: Require) -> None:
    """What does not depend on who runs it, but for its vocabulary."""
    require(bool(scenario.name) and scenario.name.isprintable(), "$.name", "must be printable text")
    require(len(scenario.name) <= NAME_LENGTH_MAX, "$.name", LONG_NAME)
    for name in ("title", "origin"):
        text = getattr(scenario, name)
        require(len(text) <= TEXT_LENGTH_MAX, f"$.{name}", f"at most {TEXT_LENGTH_MAX} characters")
    require(1 <= scenario.steps_max <= STEPS_MAX, "$.steps_max", f"must be 1..{STEPS_MAX}")
    require(0 <= scenario.seed < 1 << 32, "$.seed", "must be 0..2^32-1")
    _validate_requests(scenario, vocab_size, require)
    _validate_events(scenario, require)
    for name in Expect.__struct_fields__:
        require(getattr(scenario.expect, name) >= 0, f"$.expect.{name}", "must not be negative")


def _validate_model(model: ModelSpec, require: Require) -> None:
    require(1 <= len(model.layers) <= 16, "$.model.layers", "must name 1..16 layers")
    require(model.numerics.is_judged, "$.model.numerics", f"{model.numerics} {UNJUDGED}")
    require(0 <= model.seed < 1 << 32, "$.model.seed", "must be 0..2^32-1")
    require(2 <= model.vocab_size <= 4096, "$.model.vocab_size", "must be 2..4096")
    for name in ("hidden_size", "heads", "head_size", "state_size"):
        value = getattr(model, name)
        require(1 <= value <= 256, f"$.model.{name}", "must be 1..256")
    require(model.head_size % 2 == 0, "$.model.head_size", "must be even (rotary pairs)")
    require(2 <= model.conv_width <= 8, "$.model.conv_width", "must be 2..8")
    _validate_shapes(model, require)
    section, pairs = model.mrope_section, model.rotary_width // 2
    require(
        not section or (len(section) == 3 and min(section) >= 0 and sum(section) == pairs),
        "$.model.mrope_section",
        f"must be three counts that make {pairs}, the rotary pairs of a head",
    )


def _validate_shapes(model: ModelSpec, require: Require) -> None:
    """Groups of heads are of one size, and what turns are pairs."""
    shared = {
        "kv_heads": model.kv_head_count,
        "key_heads": model.key_head_count,
        "groups": model.groups,
    }
    for name, count in shared.items():
        require(
            1 <= count <= model.heads and model.heads % count == 0,
            f"$.model.{name}",
            f"must divide the {model.heads} heads",
        )
    require(
        2 <= model.rotary_width <= model.head_size and model.rotary_width % 2 == 0,
        "$.model.rotary_size",
        f"must be even and 2..{model.head_size}, the size of a head",
    )
    require(0 <= model.mlp_size <= 1024, "$.model.mlp_size", "must be 0..1024")
    require(len(set(model.parts)) == len(model.parts), "$.model.parts", "must not stand twice")


def _validate_engine(engine: EngineSpec, require: Require) -> None:
    limits = {
        "depth": (1, DEPTH_MAX),
        "draft_len_max": (0, DRAFT_LEN_MAX),
        "rows_max": (1, ROWS_MAX),
        "tokens_per_step_max": (1, 4096),
        "prefill_chunk_max": (1, 4096),
        "block_size": (1, 256),
        "blocks": (2, 4096),
        "state_blocks": (2, 4096),
        "state_interval": (1, 1024),
        "model_len_max": (2, 8192),
        "ranks": (1, RANKS_MAX),
    }
    for name, (low, high) in limits.items():
        value = getattr(engine, name)
        require(low <= value <= high, f"$.engine.{name}", f"must be {low}..{high}, is {value}")
    require(
        len(engine.capture_rows) >= 1
        and list(engine.capture_rows) == sorted(set(engine.capture_rows))
        and engine.capture_rows[0] >= 1,
        "$.engine.capture_rows",
        "must be rising batch sizes of at least 1",
    )
    prefixes_max = engine.prefixes_max
    require(
        prefixes_max is None or prefixes_max > 0,
        "$.engine.prefixes_max",
        f"must be at least 1, is {prefixes_max}",
    )
    steps = engine.failing_loads
    is_rising = list(steps) == sorted(set(steps)) and min(steps, default=0) >= 0
    require(is_rising, "$.engine.failing_loads", "must be rising steps")
    if engine.cache_mode.has_columns:
        require(
            engine.state_interval % engine.block_size == 0,
            "$.engine.state_interval",
            f"must be a multiple of block_size = {engine.block_size} in {engine.cache_mode} mode",
        )
    if engine.cache_mode.splits_chunks:
        # A prefill chunk that cannot reach the next boundary is never planned: it would wait for
        # ever.
        for name in ("tokens_per_step_max", "prefill_chunk_max"):
            value = getattr(engine, name)
            require(
                value >= engine.state_interval,
                f"$.engine.{name}",
                f"must be at least state_interval = {engine.state_interval} in "
                f"{engine.cache_mode} mode",
            )


def _validate_layout(scenario: OwnScenario, require: Require) -> None:
    """Slots do not combine with everything that rows do."""
    engine = scenario.engine
    if engine.layout is Layout.ROWS:
        return
    for index, event in enumerate(scenario.events):
        require(
            not isinstance(event, Rotate),
            f"$.events[{index}]",
            "slots do not move: a rotation needs layout rows",
        )


def _validate_ranks(scenario: OwnScenario, require: Require) -> None:
    model, ranks = scenario.model, scenario.engine.ranks
    if ranks == 1:
        return
    for name, count in not_spread(model, ranks).items():
        reason = f"{count} cannot be spread over {ranks} ranks: give a multiple of that"
        require(False, f"$.model.{name}", reason)
    require(
        scenario.engine.graph_mode is GraphMode.EAGER,
        "$.engine.graph_mode",
        "must be eager with several ranks: collectives are not captured",
    )


def _validate_size(scenario: OwnScenario, require: Require) -> None:
    model, engine = scenario.model, scenario.engine
    state = model.heads * model.head_size * max(model.state_size, 2 * engine.block_size) * 4
    require(
        not engine.draws_drafts or model.vocab_size <= DRAWN_VOCAB_MAX,
        "$.model.vocab_size",
        f"at most {DRAWN_VOCAB_MAX} with draft_sampling random, is {model.vocab_size}",
    )
    total_bytes = state * len(model.layers) * max(engine.blocks, engine.state_blocks)
    require(
        total_bytes <= STATE_BYTES_MAX,
        "$.model",
        f"states and caches would take {total_bytes} bytes, at most {STATE_BYTES_MAX}",
    )


def _validate_requests(scenario: ScenarioBase, vocab_size: int, require: Require) -> None:
    count = len(scenario.requests)
    require(1 <= count <= REQUESTS_MAX, "$.requests", f"must hold 1..{REQUESTS_MAX}")
    names: set[str] = set()
    total = sum(len(request.prompt) + request.max_tokens for request in scenario.requests)
    require(total <= TOKENS_MAX, "$.requests", f"{total} tokens in all, at most {TOKENS_MAX}")
    for index, request in enumerate(scenario.requests):
        path = f"$.requests[{index}]"
        require(
            bool(request.name) and all(c.isalnum() or c in "_-." for c in request.name),
            f"{path}.name",
            "must be letters, digits, '_', '-' or '.'",
        )
        require(len(request.name) <= NAME_LENGTH_MAX, f"{path}.name", LONG_NAME)
        require(request.name not in names, f"{path}.name", f"{request.name!r} stands twice")
        names.add(request.name)
        is_in_time = 0 <= request.arrive < scenario.steps_max
        require(is_in_time, f"{path}.arrive", "must be 0..steps_max-1")
        _validate_request(request, vocab_size, path, require)


def _validate_request(request: Request, vocab_size: int, path: str, require: Require) -> None:
    require(len(request.prompt) >= 1, f"{path}.prompt", "must not be empty")
    are_tokens = all(0 <= token < vocab_size for token in request.prompt)
    require(are_tokens, f"{path}.prompt", f"tokens must be 0..{vocab_size - 1}")
    require(request.max_tokens >= 1, f"{path}.max_tokens", "must be at least 1")
    require(
        request.stop_after is None or 1 <= request.stop_after <= request.max_tokens,
        f"{path}.stop_after",
        "must be 1..max_tokens",
    )
    require(
        request.stop_token is None or 0 <= request.stop_token < vocab_size,
        f"{path}.stop_token",
        f"must be 0..{vocab_size - 1}",
    )
    require(
        len(request.accepts) >= 1 and all(1 <= a <= 1 + DRAFT_LEN_MAX for a in request.accepts),
        f"{path}.accepts",
        f"must be counts of 1..{1 + DRAFT_LEN_MAX}",
    )
    require(0.0 <= request.temperature <= 16.0, f"{path}.temperature", "must be 0..16")
    require(0 <= request.seed < 1 << 32, f"{path}.seed", "must be 0..2^32-1")
    is_modulus = request.grammar_modulus == 0 or 2 <= request.grammar_modulus <= vocab_size
    require(is_modulus, f"{path}.grammar_modulus", f"must be 0, or 2..{vocab_size}")
    most = STEPS_MAX if request.grammar_modulus else 0
    require(0 <= request.grammar_turns <= most, f"{path}.grammar_turns", f"must be 0..{most}")
    _validate_images(request, f"{path}.images", require)


def _validate_images(request: Request, path: str, require: Require) -> None:
    """Grids that follow one another, and a token of text behind them: what is sampled goes on from
    its position.
    """
    free = 0
    for index, image in enumerate(request.images):
        require(
            all(1 <= extent <= TOKENS_MAX for extent in image.grid),
            f"{path}[{index}].grid",
            f"must be frames, rows and columns, each 1..{TOKENS_MAX}",
        )
        end = image.start + image.tokens
        require(image.start >= free, f"{path}[{index}].start", f"must be {free} at least")
        require(
            end < len(request.prompt),
            f"{path}[{index}]",
            f"takes tokens up to {end} of {len(request.prompt)}, the prompt's last one is text",
        )
        free = end


def _validate_own_requests(scenario: OwnScenario, require: Require) -> None:
    """Lengths for which the engine has room, and images that the model takes."""
    engine = scenario.engine
    for index, request in enumerate(scenario.requests):
        path = f"$.requests[{index}]"
        length = len(request.prompt) + request.max_tokens
        require(
            length <= engine.model_len_max,
            path,
            f"prompt and max_tokens make {length} tokens, model_len_max is {engine.model_len_max}",
        )
        require(
            not request.images or scenario.model.has_mrope,
            f"{path}.images",
            "need a model with three-dimensional positions: give model.mrope_section",
        )
        require(not request.grammar_turns, f"{path}.grammar_turns", "is for releases alone")
        _validate_fits(request, engine, path, require)


def _validate_fits(request: Request, engine: EngineSpec, path: str, require: Require) -> None:
    """A request that could not be scheduled even alone would wait for ever."""
    k = engine.draft_len_max
    # The last planned step counts every draft in flight as accepted, and the drafter looks k
    # further.
    unverified = max(0, (engine.depth - 1) * (1 + k) - 1) + 2 * k
    tokens_most = min(
        len(request.prompt) + request.max_tokens - 1 + unverified, engine.model_len_max
    )
    blocks = -(-tokens_most // engine.block_size)
    require(blocks < engine.blocks, f"{path}", f"needs {blocks} blocks, {engine.blocks - 1} exist")
    state_blocks = 1 + k
    if engine.cache_mode.has_columns:
        state_blocks = -(-tokens_most // engine.state_interval) + k
    if engine.cache_mode is CacheMode.ALL:
        # No step ends behind the last position but one.
        most = min(tokens_most, engine.model_len_max - 1)
        state_blocks = most // engine.state_interval + 1 + k
    require(
        state_blocks < engine.state_blocks,
        f"{path}",
        f"needs {state_blocks} state blocks, {engine.state_blocks - 1} exist",
    )


def _validate_events(scenario: ScenarioBase, require: Require) -> None:
    require(len(scenario.events) <= EVENTS_MAX, "$.events", f"at most {EVENTS_MAX} events")
    names = {request.name for request in scenario.requests}
    seen: set[tuple[type, int, str | None]] = set()
    for index, event in enumerate(scenario.events):
        path = f"$.events[{index}]"
        require(0 <= event.step < scenario.steps_max, f"{path}.step", "must be 0..steps_max-1")
        match event:
            case Preempt() | Abort() | Gap() | DraftLimit():
                require(
                    event.request in names, f"{path}.request", f"no request {quoted(event.request)}"
                )
            case Rotate():
                require(
                    len(event.requests) >= 2
                    and len(set(event.requests)) == len(event.requests)
                    and set(event.requests) <= names,
                    f"{path}.requests",
                    "must be at least two different requests of the scenario",
                )
            case Budget():
                require(event.tokens >= 0, f"{path}.tokens", "must not be negative")
            case Dummy():
                require(event.rows >= 1, f"{path}.rows", "must be at least 1")
        same = (type(event), event.step, getattr(event, "request", None))
        require(same not in seen, path, f"the same event stands twice for step {event.step}")
        seen.add(same)
        if isinstance(event, Gap):
            require(1 <= event.steps <= STEPS_MAX, f"{path}.steps", f"must be 1..{STEPS_MAX}")
        if isinstance(event, DraftLimit):
            require(
                0 <= event.drafts <= DRAFT_LEN_MAX, f"{path}.drafts", f"must be 0..{DRAFT_LEN_MAX}"
            )


def _validate_pauses(scenario: Scenario, require: Require) -> None:
    require(len(scenario.pauses) <= EVENTS_MAX, "$.pauses", f"at most {EVENTS_MAX} pauses")
    for index, pause in enumerate(scenario.pauses):
        for name, most in (("step", scenario.steps_max - 1), ("turns", STEPS_MAX)):
            path = f"$.pauses[{index}].{name}"
            require(0 <= getattr(pause, name) <= most, path, f"must be 0..{most}")


def _validate_own_events(scenario: OwnScenario, require: Require) -> None:
    """No more than the engine has in a step."""
    tokens_max = scenario.engine.tokens_per_step_max
    for index, event in enumerate(scenario.events):
        path = f"$.events[{index}]"
        if isinstance(event, Budget):
            require(event.tokens <= tokens_max, f"{path}.tokens", f"must be 0..{tokens_max}")
        if isinstance(event, Dummy):
            # A padding row has one token.
            most = min(scenario.engine.rows_max, tokens_max)
            require(event.rows <= most, f"{path}.rows", f"must be 1..{most}")
