"""Scenarios for the tests of the reference: by hand, and at random."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from racegate.scenario.settings import (
    CacheMode,
    DrafterKind,
    EngineSpec,
    GraphMode,
    LayerKind,
    ModelPart,
    ModelSpec,
    Planning,
    Zeroing,
)
from racegate.scenario.spec import (
    Abort,
    Budget,
    DraftLimit,
    Dummy,
    Event,
    Gap,
    OwnScenario,
    Preempt,
    Request,
    Rotate,
)
from racegate.scenario.validation import validate
from support import JUDGED

SMALL = ModelSpec(
    layers=(LayerKind.MAMBA2, LayerKind.GATED_DELTA, LayerKind.ATTENTION),
    vocab_size=11,
    hidden_size=4,
    heads=2,
    head_size=2,
    state_size=3,
    conv_width=3,
)


def scenario(
    *requests: Request,
    events: tuple[Event, ...] = (),
    model: ModelSpec = SMALL,
    steps_max: int = 200,
    **engine: Any,
) -> OwnScenario:
    """A valid scenario of these requests; `engine` gives fields of EngineSpec."""
    return validate(
        OwnScenario(
            name="test",
            title="made by a test",
            steps_max=steps_max,
            model=model,
            engine=EngineSpec(**engine),
            requests=requests,
            events=events,
        )
    )


def request(name: str = "A", *, prompt_len: int = 3, arrive: int = 0, **fields: Any) -> Request:
    """A request with a prompt of 1, 2, 3, ... (modulo 11) unless `prompt` is given."""
    fields.setdefault("prompt", tuple((1 + i) % 11 for i in range(prompt_len)))
    return Request(name=name, arrive=arrive, **{"max_tokens": 8, **fields})


LAYERS = st.lists(st.sampled_from(LayerKind), min_size=1, max_size=3).map(tuple)


def model_specs(**fixed: Any) -> SearchStrategy[ModelSpec]:
    """Small models with any layers, in both numerics."""
    fields: dict[str, SearchStrategy[Any]] = {
        "numerics": st.sampled_from(JUDGED),
        "layers": LAYERS,
        "seed": st.integers(0, 2**32 - 1),
        "vocab_size": st.integers(2, 12),
        "hidden_size": st.integers(1, 5),
        "heads": st.integers(1, 2),
        "kv_heads": st.sampled_from((None, 1)),
        "key_heads": st.sampled_from((None, 1)),
        "head_size": st.sampled_from((2, 4)),
        "rotary_size": st.sampled_from((None, 2)),
        "mlp_size": st.sampled_from((0, 3)),
        "parts": st.lists(st.sampled_from(ModelPart), unique=True).map(tuple),
        "state_size": st.integers(1, 3),
        "conv_width": st.integers(2, 4),
    }
    fields.update({name: st.just(value) for name, value in fixed.items()})
    return st.builds(ModelSpec, **fields).map(_with_groups)


def _with_groups(spec: ModelSpec) -> ModelSpec:
    """A group of B and C for each key head, which divide the heads alike."""
    return msgspec.structs.replace(spec, groups=spec.key_head_count)


def scenarios() -> SearchStrategy[OwnScenario]:
    """Anything that may happen to one to four requests.

    Hypothesis favours simple values, of which these many-sided scenarios would rarely be made; so
    it only chooses the seed.
    """
    return st.integers(0, 2**32 - 1).map(lambda seed: random_scenario(Random(seed)))


def random_scenario(random: Random) -> OwnScenario:
    """A scenario in which blocks, rows and budget are scarce now and then."""
    drafter = random.choice(tuple(DrafterKind))
    fixed = {DrafterKind.NONE: 0, DrafterKind.EXTRACT_HIDDEN_STATES: 1}
    k = fixed.get(drafter, random.randint(0, 3))
    model = msgspec.structs.replace(
        SMALL,
        numerics=random.choice(JUDGED),
        layers=random.choice((SMALL.layers, SMALL.layers[:1], SMALL.layers[1:])),
        seed=random.randrange(2**32),
        vocab_size=random.choice((2, 5, 12)),
    )
    names = "ABCD"[: random.randint(1, 4)]
    base = [random.randrange(model.vocab_size) for _ in range(12)]
    requests = tuple(_random_request(random, name, base, model.vocab_size) for name in names)
    return validate(
        OwnScenario(
            name="random",
            title="random",
            steps_max=150,
            model=model,
            engine=_random_engine(random, drafter, k, requests),
            requests=requests,
            events=_random_events(random, names),
        )
    )


def _random_request(random: Random, name: str, base: list[int], vocab_size: int) -> Request:
    """A request; many prompts share a prefix with `base`, so that prefixes are hit."""
    own = [random.randrange(vocab_size) for _ in range(random.randint(1, 6))]
    max_tokens = random.randint(1, 12)
    return Request(
        name=name,
        arrive=random.choice((0, 0, random.randint(0, 12))),
        prompt=(*base[: random.choice((0, 5, 9, 12))], *own),
        max_tokens=max_tokens,
        stop_after=random.choice((None, None, random.randint(1, max_tokens))),
        accepts=tuple(random.randint(1, 4) for _ in range(random.randint(1, 4))),
        temperature=random.choice((0.0, 0.0, 0.5, 1.0)),
        seed=random.randrange(2**32),
        grammar_modulus=random.choice((0, 0, 2, vocab_size)),
        stop_token=random.choice((None, None, None, random.randrange(vocab_size))),
    )


def _random_engine(
    random: Random, drafter: DrafterKind, k: int, requests: tuple[Request, ...]
) -> EngineSpec:
    block_size, interval = random.choice((1, 2, 4)), 4
    longest = max(len(r.prompt) + r.max_tokens for r in requests)
    most = longest + 4 * k + 2
    return EngineSpec(
        depth=random.randint(1, 3),
        draft_len_max=k,
        drafter=drafter,
        cache_mode=random.choice(tuple(CacheMode)),
        rows_max=random.choice((1, 2, 4, 4)),
        tokens_per_step_max=random.choice((4, 6, 16, 64)),
        prefill_chunk_max=random.choice((4, 5, 8, 64)),
        block_size=block_size,
        # One request at its longest fits; with more blocks, all of them do.
        blocks=-(-most // block_size) + 1 + random.choice((0, 4, 80)),
        state_blocks=-(-most // interval) + k + 1 + random.choice((0, 4, 40)),
        state_interval=interval,
        model_len_max=longest + random.choice((0, 1, 20)),
        graph_mode=random.choice(tuple(GraphMode)),
        zeroing=random.choice(tuple(Zeroing)),
        planning=random.choice(tuple(Planning)),
    )


def _random_events(random: Random, names: str) -> tuple[Event, ...]:
    """Events of which no two say something about the same matter in the same step."""
    events = (_random_event(random, names) for _ in range(random.randint(0, 6)))
    by_matter = {(type(e), e.step, getattr(e, "request", None)): e for e in events}
    return tuple(by_matter.values())


def _random_event(random: Random, names: str) -> Event:
    step, name = random.randint(0, 12), random.choice(names)
    events: list[Event] = [
        Preempt(step=step, request=name),
        Gap(step=step, request=name, steps=random.randint(1, 3)),
        Budget(step=step, tokens=random.randint(0, 4)),
        DraftLimit(step=step, request=name, drafts=random.randint(0, 2)),
        Abort(step=step, request=name),
        Dummy(step=step),
    ]
    if len(names) > 1:
        events.append(Rotate(step=step, requests=tuple(random.sample(names, 2))))
    return random.choice(events)


def busy(**engine: Any) -> OwnScenario:
    """Three requests, chunked prompts, a gap and a preemption; k = 2 unless given."""
    fields: dict[str, Any] = {"depth": 2, "draft_len_max": 2, "block_size": 2, "state_interval": 4}
    model = engine.pop("model", SMALL)
    return scenario(
        request("A", prompt_len=9, max_tokens=9, accepts=(2, 3, 1)),
        request("B", prompt_len=6, max_tokens=9, arrive=1, accepts=(3,), temperature=0.7),
        request("C", prompt_len=9, max_tokens=4, arrive=4, accepts=(1,)),
        events=(Gap(step=4, request="A"), Preempt(step=6, request="B")),
        model=model,
        **{**fields, "prefill_chunk_max": 5, **engine},
    )
