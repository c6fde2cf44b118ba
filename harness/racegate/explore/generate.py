"""Generated scenarios and holds: one generator, driven by a seed or by Hypothesis.

Every choice is an index into options with the simplest first, so that smaller choices are simpler
scenarios. Lengths cluster at the boundaries where the public bugs live: 1, k + 1, the block edge
and one before it. What a scenario is about is drawn first (`swarm`), then its settings, requests
and events; what it really went through is another matter (`features`).
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from racegate.explore.drawn import draw_events, draw_images, draw_requests
from racegate.explore.swarm import Pick, Theme, Themes, draw_themes, one_of
from racegate.history.schedule import FORCED, Hold, Schedule
from racegate.scenario.settings import (
    CacheMode,
    Cascade,
    DrafterKind,
    DraftSampling,
    EngineSpec,
    GraphMode,
    LayerKind,
    Layout,
    ModelPart,
    ModelSpec,
    Numerics,
    OutputEvent,
    Planning,
    StateLife,
    TransferMode,
    Zeroing,
    not_spread,
)
from racegate.scenario.spec import OwnScenario, Request

STEPS_MAX = 400
PUBLISHED_STEPS = 3  # by then the first chunk of a prompt has been processed
STEP_LAST = 14  # of holds: later steps are often not reached

_LAYERS = (
    (LayerKind.MAMBA2, LayerKind.GATED_DELTA, LayerKind.ATTENTION),
    (LayerKind.GATED_DELTA,),
    (LayerKind.MAMBA2, LayerKind.ATTENTION),
    (LayerKind.ATTENTION, LayerKind.GATED_DELTA, LayerKind.MAMBA2),
    (LayerKind.ATTENTION,),
)
_DRAFTERS = (
    DrafterKind.SCRIPTED,
    DrafterKind.SCRIPTED,
    DrafterKind.SCRIPTED,
    DrafterKind.MTP,
    DrafterKind.EXTRACT_HIDDEN_STATES,
    DrafterKind.NONE,
)
# Their drafts are right by chance: one of so many.
_LUCKY = (DrafterKind.MTP, DrafterKind.EXTRACT_HIDDEN_STATES)


def seeded(seed: int, index: int) -> Pick:
    """Picks that depend on a seed and an index only."""
    return Random(f"{seed}/{index}").randrange


def generate(pick: Pick, *, name: str) -> OwnScenario:
    """A valid scenario; the first request is never aborted, so that something runs."""
    themes = draw_themes(pick)
    engine = _engine(pick, themes)
    model = _model(pick, themes, engine.drafter)
    requests = draw_requests(pick, themes, engine, vocab_size=model.vocab_size)
    events = draw_events(pick, themes, engine, requests)
    engine = _with_late_drafters(pick, themes, model, engine)
    model = _with_coordinates(pick, model)
    engine = _with_pieces(pick, engine)
    requests = _with_images(pick, model, requests)
    engine = _with_layout(pick, themes, engine)
    engine = _with_every_block(pick, engine)
    model = _with_real_shapes(pick, model)
    engine = _with_cascade(pick, themes, model, engine)
    engine = _with_ranks(pick, model, engine)
    model = _with_half_turning(pick, model)
    requests = _with_common_prompt(themes, engine, requests)
    engine = _with_transfers(pick, engine)
    return OwnScenario(
        name=name,
        title="generated",
        steps_max=STEPS_MAX,
        model=model,
        engine=engine,
        requests=requests,
        events=events,
    )


def _model(pick: Pick, themes: Themes, drafter: DrafterKind) -> ModelSpec:
    vocab_size = one_of(pick, (5, 2) if drafter in _LUCKY else (97, 97, 5))
    return ModelSpec(
        layers=one_of(pick, _LAYERS),
        seed=pick(1000),
        vocab_size=2 if Theme.TURNS in themes else vocab_size,
        conv_width=one_of(pick, (4, 2, 3)),
        numerics=one_of(pick, (Numerics.EXACT, Numerics.EXACT, Numerics.EXACT, Numerics.FLOAT32)),
    )


def _engine(pick: Pick, themes: Themes) -> EngineSpec:
    drafter = one_of(pick, _DRAFTERS)
    k = one_of(pick, (3, 2, 1, 5))
    if drafter is DrafterKind.NONE:
        k = 0
    elif drafter is DrafterKind.EXTRACT_HIDDEN_STATES:
        k = 1
    block_size = one_of(pick, (4, 2))
    interval = block_size * one_of(pick, (2, 1))
    cache_mode = one_of(pick, (CacheMode.NONE, CacheMode.ALIGN, CacheMode.OFFLOAD))
    # A chunk that cannot reach the next boundary would never be planned.
    least = interval if cache_mode.has_columns else 1
    rows_max = one_of(pick, (3, 2, 1) if Theme.QUEUE in themes else (8, 6))
    chunks = (1 + k, max(1, k)) if Theme.CHUNKS in themes else (64, 8, 5, 3)
    engine = EngineSpec(
        depth=one_of(pick, (2, 2, 1, 3, 4)),
        draft_len_max=k,
        drafter=drafter,
        cache_mode=cache_mode,
        rows_max=rows_max,
        tokens_per_step_max=max(least, one_of(pick, (64, 64, 16, 8))),
        prefill_chunk_max=max(least, one_of(pick, chunks)),
        block_size=block_size,
        state_interval=interval,
        model_len_max=one_of(pick, (24, 28) if Theme.LONG in themes else (40, 32)),
        zeroing=one_of(pick, (Zeroing.NONE, Zeroing.NONE, Zeroing.FRESH)),
        planning=one_of(pick, (Planning.INLINE, Planning.INLINE, Planning.SIDE_STREAM)),
    )
    return _with_graphs(pick, _with_pools(pick, themes, engine))


def _with_pools(pick: Pick, themes: Themes, engine: EngineSpec) -> EngineSpec:
    """Room for all requests or, under pressure, for one as long as it may be and little more."""
    k = engine.draft_len_max
    blocks = -(-engine.model_len_max // engine.block_size) + 1
    state_blocks = 2 + k
    if engine.cache_mode.has_columns:
        state_blocks = -(-engine.model_len_max // engine.state_interval) + k + 1
    tight = one_of(pick, ((False, True), (True, False), (True, True)))
    if Theme.PRESSURE not in themes:
        # A prefix that comes again has to be lost in between, now and then.
        tight = (False, Theme.REPEAT in themes and pick(3) > 0)
    return msgspec.structs.replace(
        engine,
        blocks=blocks + pick(4) if tight[0] else 96,
        state_blocks=state_blocks + pick(2 + k) if tight[1] else 96,
    )


def _with_late_drafters(
    pick: Pick, themes: Themes, model: ModelSpec, engine: EngineSpec
) -> EngineSpec:
    """Picked last and in the place of others, so that everything else is what it was: of mtp, and
    of scripts where drafts are drawn, at temperatures; few floats would be far enough apart.
    """
    is_drawn = Theme.RANDOM in themes and model.numerics is Numerics.EXACT
    if engine.drafter is DrafterKind.SCRIPTED and is_drawn and pick(2):
        return msgspec.structs.replace(
            engine, drafter=DrafterKind.MTP, draft_sampling=DraftSampling.RANDOM
        )
    if engine.drafter is not DrafterKind.MTP:
        return engine
    drafts = one_of(pick, (DraftSampling.GREEDY, DraftSampling.RANDOM, DrafterKind.NGRAM))
    if isinstance(drafts, DraftSampling):
        return msgspec.structs.replace(engine, draft_sampling=drafts)
    return msgspec.structs.replace(engine, drafter=drafts)


def _with_coordinates(pick: Pick, model: ModelSpec) -> ModelSpec:
    """Picked as late: a section for the two pairs of a head, or none."""
    if LayerKind.ATTENTION not in model.layers:
        return model
    section = one_of(pick, ((), (), (1, 1, 0), (0, 1, 1)))
    return msgspec.structs.replace(model, mrope_section=section)


def _with_real_shapes(pick: Pick, model: ModelSpec) -> ModelSpec:
    """Picked last: shared heads and parts of real models; floats have states that last."""
    if model.numerics is Numerics.FLOAT32:
        model = msgspec.structs.replace(model, state_size=16, state_life=StateLife.LONG)
    if pick(3) < 2:
        return model
    return msgspec.structs.replace(
        model,
        heads=4,
        kv_heads=one_of(pick, (None, 2, 1)),
        key_heads=one_of(pick, (None, 2)),
        groups=one_of(pick, (1, 2)),
        rotary_size=None if model.has_mrope else one_of(pick, (None, 2)),
        mlp_size=one_of(pick, (0, 4)),
        parts=tuple(part for part in ModelPart if pick(2)),
    )


def _with_images(
    pick: Pick, model: ModelSpec, requests: tuple[Request, ...]
) -> tuple[Request, ...]:
    if not model.has_mrope:
        return requests
    return tuple(
        msgspec.structs.replace(request, images=draw_images(pick, len(request.prompt)))
        for request in requests
    )


def _with_cascade(pick: Pick, themes: Themes, model: ModelSpec, engine: EngineSpec) -> EngineSpec:
    """Picked last: asked for in three of eight, where it may have to give way, more often where
    prompts come again; in some with nothing in flight beside it, where it does not. It need not
    either where nothing is drafted: asked for in seven of eight, and ahead.
    """
    if LayerKind.ATTENTION not in model.layers:
        return engine
    asked, is_drafting = pick(8), engine.drafter is not DrafterKind.NONE
    if is_drafting:
        asked -= 2 if Theme.REPEAT in themes else 4
    if asked <= 0:
        return engine
    is_alone = is_drafting and asked > 2 and engine.cache_mode is not CacheMode.OFFLOAD
    return msgspec.structs.replace(
        engine, cascade=Cascade.ON, depth=1 if is_alone else engine.depth
    )


def _with_common_prompt(
    themes: Themes, engine: EngineSpec, requests: tuple[Request, ...]
) -> tuple[Request, ...]:
    """Where a common prefix is looked for, all requests that have room for it begin with the first
    tokens of the longest prompt, up to a boundary and the token behind it, which is part of a
    block's key, as behind a system prompt. The first comes when the earliest would have, the others
    when these are published.
    """
    if not engine.has_cascade or Theme.TURNS in themes or not engine.cache_mode.publishes:
        return requests
    longest = max((request.prompt for request in requests), key=len)
    shared = longest[: engine.state_interval + 1]
    first = min(request.arrive for request in requests)

    def room(request: Request) -> int:
        return engine.model_len_max - request.max_tokens - len(shared)

    return tuple(
        msgspec.structs.replace(
            request,
            prompt=shared + request.prompt[: room(request)],
            arrive=max(request.arrive, first + PUBLISHED_STEPS) if place else first,
        )
        if room(request) > 0 and not request.images
        else request
        for place, request in enumerate(requests)
    )


def _with_transfers(pick: Pick, engine: EngineSpec) -> EngineSpec:
    """Picked last: what carries prefixes, where they leave, for how many there is room, and in
    which steps their loads fail.
    """
    if engine.cache_mode is not CacheMode.OFFLOAD:
        return engine
    engine = msgspec.structs.replace(
        engine,
        transfers=one_of(pick, tuple(TransferMode)),
        prefixes_max=one_of(pick, (None, None, 1, 2)),
    )
    if engine.transfers is TransferMode.STREAMS or pick(3):
        return engine
    first = pick(STEP_LAST)
    return msgspec.structs.replace(engine, failing_loads=tuple(range(first, STEP_LAST)))


def _with_every_block(pick: Pick, engine: EngineSpec) -> EngineSpec:
    """Picked last and in the place of align, whose pools have room for it."""
    if engine.cache_mode is not CacheMode.ALIGN:
        return engine
    mode = one_of(pick, (CacheMode.ALIGN, CacheMode.ALL))
    return msgspec.structs.replace(engine, cache_mode=mode)


def _with_layout(pick: Pick, themes: Themes, engine: EngineSpec) -> EngineSpec:
    """Picked behind everything else: half of the scenarios that are not about rotations in slots,
    fewer where weights of drafts are to move, and one of three with its outputs sent early.
    """
    rows = (Layout.ROWS,) * (3 if engine.draws_drafts else 1)
    layout = Layout.ROWS if Theme.ROTATE in themes else one_of(pick, (*rows, Layout.SLOTS))
    after, before = OutputEvent.AFTER_DRAFTER, OutputEvent.BEFORE_DRAFTER
    return msgspec.structs.replace(
        engine, layout=layout, output_event=one_of(pick, (after, after, before))
    )


def _with_graphs(pick: Pick, engine: EngineSpec) -> EngineSpec:
    mode = one_of(pick, (GraphMode.EAGER, GraphMode.EAGER, GraphMode.FULL_DECODE))
    if mode is GraphMode.EAGER:
        return engine
    own = tuple(sorted({1, engine.rows_max}))
    sizes = one_of(pick, ((1, 2, 4, 8), own, (2, 3), (4,)))
    return msgspec.structs.replace(engine, graph_mode=mode, capture_rows=sizes)


def _with_pieces(pick: Pick, engine: EngineSpec) -> EngineSpec:
    """Picked late: half of the engines with graphs have those of pieces."""
    if engine.graph_mode is GraphMode.EAGER or not pick(2):
        return engine
    return msgspec.structs.replace(engine, graph_mode=GraphMode.PIECEWISE)


def _with_ranks(pick: Pick, model: ModelSpec, engine: EngineSpec) -> EngineSpec:
    """Picked last: one of six of those that can be spread is, over two."""
    if engine.graph_mode is not GraphMode.EAGER or not_spread(model, 2) or pick(6) < 5:
        return engine
    return msgspec.structs.replace(engine, ranks=2)


def _with_half_turning(pick: Pick, model: ModelSpec) -> ModelSpec:
    """Picked last: the section is for the first half of heads that are twice as wide."""
    turns_half = pick(4) == 3
    if not (model.has_mrope and turns_half):
        return model
    return msgspec.structs.replace(model, head_size=8, rotary_size=4)


_HELD = (
    "d2h:valid_count",
    "d2h:sampled",
    "d2h:accepted_counts",
    "h2d:input_ids",
    "h2d:block_table",
    "kernel:sample",
    "kernel:next_token",
    "kernel:layer.0",
    "kernel:draft",
    "kernel:positions",
    "h2d:mask",
    "d2h:save.state.0",
    "h2d:load.state.0",
    "graph:decode.*",
)
_POINTS = ("update_states", "condense", "reorder", "prepare_inputs", "correct", "process")
# With slots no inputs are uploaded, no counts go to the host, and nothing moves.
_HELD_OF_SLOTS = (
    "d2h:sampled",
    "d2h:drafts",
    "h2d:mask",
    "kernel:take.input_ids",
    "kernel:apply.block_table",
    "kernel:apply.state_table",
    "kernel:gather.accepted",
    "kernel:sample",
    "kernel:next_token",
    "kernel:layer.0",
    "kernel:draft",
    "kernel:carry_over",
    "kernel:positions",
    "kernel:column_plan",
    "d2h:save.state.0",
    "h2d:load.state.0",
    "graph:decode.*",
)
_POINTS_OF_SLOTS = ("update_states", "lay_out", "prepare_inputs", "process")


def generate_holds(pick: Pick, *, layout: Layout = Layout.ROWS, ranks: int = 1) -> Schedule:
    """Few holds of what a layout has, drawn after the scenario; none is the simplest."""
    is_rows = layout is Layout.ROWS
    held: Sequence[str] = _HELD if is_rows else _HELD_OF_SLOTS
    points: Sequence[str] = _POINTS if is_rows else _POINTS_OF_SLOTS
    holds = []
    for _ in range(pick(4)):
        step = pick(STEP_LAST)
        until = FORCED
        if pick(4):
            until = f"host:{one_of(pick, points)}{_rank(pick, ranks)}@{step + pick(3)}"
        op = f"{one_of(pick, held)}{_rank(pick, ranks)}@{step}"
        holds.append(Hold(op=op, until=until))
    return Schedule(holds=tuple(holds))


def _rank(pick: Pick, ranks: int) -> str:
    """What a name ends with where there are several."""
    return f".rank{pick(ranks)}" if ranks > 1 else ""
