"""Generated scenarios and holds: one generator, driven by a seed or by Hypothesis.

Every choice is an index into options with the simplest first, so that smaller choices are simpler
scenarios. Lengths cluster at the boundaries where the public bugs live: 1, k + 1, the block edge
and one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

import msgspec

from racegate.history.schedule import FORCED, Hold, Schedule
from racegate.scenario.spec import (
    Abort,
    Budget,
    CacheMode,
    DrafterKind,
    DraftLimit,
    Dummy,
    EngineSpec,
    Event,
    Gap,
    GraphMode,
    LayerKind,
    ModelSpec,
    Numerics,
    Planning,
    Preempt,
    Request,
    Rotate,
    Scenario,
    Zeroing,
)

# Picks a number below its argument.
Pick = Callable[[int], int]

T = TypeVar("T")

STEPS_MAX = 400
MODEL_LEN_MAX = 40
STEP_LAST = 14  # of events and arrivals: later ones would often meet an idle engine

_LAYERS = (
    (LayerKind.MAMBA2, LayerKind.GATED_DELTA, LayerKind.ATTENTION),
    (LayerKind.GATED_DELTA,),
    (LayerKind.MAMBA2, LayerKind.ATTENTION),
    (LayerKind.ATTENTION, LayerKind.GATED_DELTA, LayerKind.MAMBA2),
)
_DRAFTERS = (
    DrafterKind.SCRIPTED,
    DrafterKind.SCRIPTED,
    DrafterKind.SCRIPTED,
    DrafterKind.MTP,
    DrafterKind.EXTRACT_HIDDEN_STATES,
    DrafterKind.NONE,
)


_GRAPH_MODES = (GraphMode.EAGER, GraphMode.EAGER, GraphMode.FULL_DECODE)
_CAPTURED = ((1, 2, 4, 8), (4,), (2, 3), (8,))


def seeded(seed: int, index: int) -> Pick:
    """Picks that depend on a seed and an index only."""
    return Random(f"{seed}/{index}").randrange


def one_of(pick: Pick, options: Sequence[T]) -> T:
    """One of the options, by a pick."""
    return options[pick(len(options))]


def generate(pick: Pick, *, name: str) -> Scenario:
    """A scenario; not every one is valid (pools may be too small), see `validate`."""
    engine = _engine(pick)
    drafts = engine.draft_len_max
    needs_luck = engine.drafter in (DrafterKind.MTP, DrafterKind.EXTRACT_HIDDEN_STATES)
    model = ModelSpec(
        layers=one_of(pick, _LAYERS),
        seed=pick(1000),
        vocab_size=5 if needs_luck else 97,
        conv_width=one_of(pick, (4, 2, 3)),
        numerics=Numerics.EXACT,
    )
    requests = _requests(pick, engine, vocab_size=model.vocab_size)
    events = _events(pick, requests, engine, drafts=drafts)
    return Scenario(
        name=name,
        title="generated",
        steps_max=STEPS_MAX,
        model=model,
        engine=_with_graphs(pick, engine),
        requests=requests,
        events=events,
    )


def _engine(pick: Pick) -> EngineSpec:
    drafter = one_of(pick, _DRAFTERS)
    drafts = one_of(pick, (3, 3, 2, 1))
    if drafter is DrafterKind.NONE:
        drafts = 0
    elif drafter is DrafterKind.EXTRACT_HIDDEN_STATES:
        drafts = 1
    block_size = one_of(pick, (4, 2))
    interval = block_size * one_of(pick, (2, 1))
    cache_mode = one_of(pick, (CacheMode.NONE, CacheMode.NONE, CacheMode.ALIGN, CacheMode.OFFLOAD))
    least = interval if cache_mode.has_columns else 1
    blocks_for_one = -(-MODEL_LEN_MAX // block_size) + 2
    states_for_one = -(-MODEL_LEN_MAX // interval) + drafts + 3
    if cache_mode is CacheMode.NONE:
        states_for_one = 2 * (1 + drafts) + 1
    return EngineSpec(
        depth=one_of(pick, (2, 2, 1, 3)),
        draft_len_max=drafts,
        drafter=drafter,
        cache_mode=cache_mode,
        rows_max=one_of(pick, (8, 4, 3, 2)),
        tokens_per_step_max=max(least, one_of(pick, (64, 16, 8))),
        prefill_chunk_max=max(least, one_of(pick, (64, 8, 5, 3))),
        block_size=block_size,
        blocks=one_of(pick, (96, 40, blocks_for_one)),
        state_blocks=one_of(pick, (96, 40, states_for_one)),
        state_interval=interval,
        model_len_max=MODEL_LEN_MAX,
        zeroing=one_of(pick, (Zeroing.NONE, Zeroing.NONE, Zeroing.FRESH)),
        planning=one_of(pick, (Planning.INLINE, Planning.INLINE, Planning.SIDE_STREAM)),
    )


def _with_graphs(pick: Pick, engine: EngineSpec) -> EngineSpec:
    """Drawn last, so that what is drawn before is what it was before there were graphs."""
    mode = one_of(pick, _GRAPH_MODES)
    if mode is GraphMode.EAGER:
        return engine
    return msgspec.structs.replace(engine, graph_mode=mode, capture_rows=one_of(pick, _CAPTURED))


def _requests(pick: Pick, engine: EngineSpec, *, vocab_size: int) -> tuple[Request, ...]:
    drafts, edge = engine.draft_len_max, engine.block_size
    requests: list[Request] = []
    for index in range(1 + pick(6)):
        length = one_of(pick, (1, drafts + 1, drafts + 2, edge, edge - 1, edge + 1, 7, 13, 20))
        prompt = tuple(pick(vocab_size) for _ in range(max(1, length)))
        if requests and pick(3) == 2:
            other = requests[pick(len(requests))].prompt
            shared = min(len(other), len(prompt))
            prompt = other[:shared] + prompt[shared:]
        max_tokens = 1 + pick(14)
        stop_after = 1 + pick(max_tokens) if pick(4) == 3 else None
        requests.append(
            Request(
                name=f"R{index}",
                arrive=one_of(pick, (0, 0, 1, 2, 4, 7, 11)),
                prompt=prompt,
                max_tokens=max_tokens,
                stop_after=stop_after,
                accepts=tuple(1 + pick(1 + drafts) for _ in range(1 + pick(5))),
                temperature=one_of(pick, (0.0, 0.0, 0.0, 0.7, 1.0)),
                seed=pick(1 << 16),
                grammar_modulus=one_of(pick, (0, 0, 0, 0, 2, 5)),
            )
        )
    return tuple(requests)


def _events(
    pick: Pick, requests: Sequence[Request], engine: EngineSpec, *, drafts: int
) -> tuple[Event, ...]:
    events: dict[tuple[type, int, str | None], Event] = {}
    for _ in range(one_of(pick, (0, 1, 2, 4, 6))):
        event = _event(pick, requests, engine, drafts=drafts)
        events.setdefault((type(event), event.step, getattr(event, "request", None)), event)
    return tuple(events.values())


def _event(pick: Pick, requests: Sequence[Request], engine: EngineSpec, *, drafts: int) -> Event:
    step = 1 + pick(STEP_LAST)
    name = requests[pick(len(requests))].name
    kind = pick(7)
    if kind == 0:
        return DraftLimit(step=step, request=name, drafts=pick(1 + drafts))
    if kind == 1:
        return Gap(step=step, request=name, steps=1 + pick(2))
    if kind == 2:
        return Budget(step=step, tokens=min(engine.tokens_per_step_max, pick(9)))
    if kind == 3:
        return Preempt(step=step, request=name)
    if kind == 4:
        return Dummy(step=step, rows=1 + pick(engine.rows_max))
    if len(requests) < 2:
        return Preempt(step=step, request=name)
    if kind == 5:
        # The first request always runs: a scenario in which all give up before they start would
        # exercise nothing.
        others = [request.name for request in requests[1:]]
        return Abort(step=step, request=name if name in others else others[0])
    first = pick(len(requests))
    count = 2 + pick(min(2, len(requests) - 1))
    names = [requests[(first + i) % len(requests)].name for i in range(count)]
    return Rotate(step=step, requests=tuple(dict.fromkeys(names)))


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


def generate_holds(pick: Pick) -> Schedule:
    """Few holds, drawn after the scenario; none is the simplest."""
    holds = []
    for _ in range(pick(4)):
        step = pick(STEP_LAST)
        until = f"host:{one_of(pick, _POINTS)}@{step + pick(3)}" if pick(4) else FORCED
        holds.append(Hold(op=f"{one_of(pick, _HELD)}@{step}", until=until))
    return Schedule(holds=tuple(holds))
