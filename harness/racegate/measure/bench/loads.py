"""What the engine is measured on: two models, how they are driven, and the memory that takes.

The scenarios are larger than what a file may ask for (validation), and nothing compares what they
compute: weights are random, and so is the truth that the scripted drafter goes by. Its drafts are
therefore rejected, and every step delivers one token per request.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from racegate.engine.model.weights import parameter_shapes
from racegate.engine.state.sizes import quantity_of
from racegate.scenario.settings import EngineSpec, GraphMode, LayerKind, ModelSpec, Numerics
from racegate.scenario.spec import OwnScenario, Request

DRAFTS = 3
# All prompts together are as long as a step.
PROMPT_LEN = 1 + DRAFTS
BLOCK_SIZE = 16
# Numbers drawn once and repeated in every parameter; no width divides it, so that no two rows of
# one are equal.
TILE = (1 << 22) - 3

_M, _G, _A = LayerKind.MAMBA2, LayerKind.GATED_DELTA, LayerKind.ATTENTION


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A model and how it is measured.

    ratio_target: step time at depth 1 over depth 2; idle_target: share of the time in which nothing
        runs between steps at depth 2, if there is one
    steps: measured in one round; rounds: of each depth, in turn
    """

    name: str
    bound: str
    model: ModelSpec
    batches: tuple[int, ...]
    ratio_target: float
    idle_target: float | None
    steps: int
    rounds: int = 3


# Device time that grows with the batch as host time does, and stays below it: exact products cost
# a multiplication per element, on no tensor core. Many layers, because a small batch is bound by
# the number of kernels; `busy_ms` beside the time of a step says whether the sizes still fit.
SMALL = EngineLoad(
    name="small",
    bound="host",
    model=ModelSpec(
        numerics=Numerics.EXACT,
        layers=(_M, _M, _G, _A) * 20,
        vocab_size=1024,
        hidden_size=128,
        heads=4,
        head_size=32,
        state_size=32,
    ),
    # The largest first: memory that was taken for it serves the others.
    batches=(256, 64, 8),
    ratio_target=1.3,
    idle_target=None,
    steps=100,
)
# Layers of production size: 2.1e9 parameters, and a state of 4 MiB per layer and token column.
LARGE = EngineLoad(
    name="large",
    bound="GPU",
    model=ModelSpec(
        numerics=Numerics.BFLOAT16,
        layers=(_M, _M, _M, _G, _M, _M, _M, _A) * 2,
        vocab_size=32_768,
        hidden_size=4096,
        heads=128,
        head_size=64,
        state_size=128,
    ),
    batches=(256, 64, 8),
    ratio_target=1.03,
    idle_target=0.02,
    steps=30,
)


def decode_scenario(load: EngineLoad, *, batch: int, depth: int, steps: int) -> OwnScenario:
    """As many requests as the batch has rows, decoding together for at least so many steps."""
    width = 1 + DRAFTS
    # Planning counts drafts in flight as accepted.
    max_tokens = width * (steps + depth + 2)
    model_len = PROMPT_LEN + max_tokens + 2 * width
    engine = EngineSpec(
        depth=depth,
        draft_len_max=DRAFTS,
        rows_max=batch,
        tokens_per_step_max=batch * width,
        prefill_chunk_max=PROMPT_LEN,
        block_size=BLOCK_SIZE,
        # Optimistic lengths are corrected every step: what is held follows what was delivered.
        blocks=1 + batch * (1 + math.ceil(model_len / BLOCK_SIZE)),
        state_blocks=1 + batch * width,
        model_len_max=model_len,
        graph_mode=GraphMode.FULL_DECODE,
        capture_rows=(batch,),
    )
    vocab = load.model.vocab_size
    requests = tuple(
        Request(
            name=f"r{row}",
            arrive=0,
            prompt=tuple((31 * row + 7 * i) % vocab for i in range(PROMPT_LEN)),
            max_tokens=max_tokens,
            accepts=(width,),
        )
        for row in range(batch)
    )
    return OwnScenario(
        name=f"bench-{load.name}-{batch}",
        title=f"{batch} requests that decode",
        steps_max=1 << 30,
        model=load.model,
        engine=engine,
        requests=requests,
    )


def any_truth(scenario: OwnScenario) -> dict[str, tuple[int, ...]]:
    """What the scripted drafter takes for the true tokens."""
    vocab = scenario.model.vocab_size
    tokens = tuple(13 * place % vocab for place in range(scenario.engine.model_len_max))
    return {request.name: tokens for request in scenario.requests}


def parameter_count(model: ModelSpec) -> int:
    """Weights of a model."""
    shapes = parameter_shapes(model, has_mtp=False).values()
    return sum(math.prod(shape) for shape, _ in shapes)


def tiled_weights(model: ModelSpec, *, seed: int = 1) -> dict[str, np.ndarray]:
    """Random weights of the right size and scale, in seconds for billions of them."""
    random = np.random.default_rng(seed)
    exact = random.integers(0, 1 << 32, TILE, np.uint32)
    unit = (exact / 2.0**31 - 1.0).astype(np.float32)
    dtype = np.dtype(quantity_of(model.numerics))
    weights = {}
    for name, (shape, fan_in) in parameter_shapes(model, has_mtp=False).items():
        size = math.prod(shape)
        numbers = exact[:size]
        if model.numerics is not Numerics.EXACT:
            numbers = (unit[:size] * np.float32(math.sqrt(3.0 / fan_in))).astype(dtype)
        # Repeated as bytes: for NumPy bfloat16 is a foreign type.
        content = np.resize(numbers.view(np.uint8), size * dtype.itemsize)
        weights[name] = content.view(dtype).reshape(shape)
    return weights


def device_bytes(scenario: OwnScenario) -> int:
    """Device memory of an engine: weights, pools, and the largest pool once more, on which captures
    are rehearsed. Activations are small beside it.
    """
    model, engine = scenario.model, scenario.engine
    inner, item = model.heads * model.head_size, np.dtype(quantity_of(model.numerics)).itemsize
    entry, pools = 2 * model.kv_head_count * model.head_size, [0]
    for kind in model.layers:
        if kind is LayerKind.ATTENTION:
            pools.append(engine.blocks * engine.block_size * entry * item)
            continue
        shared = model.groups if kind is LayerKind.MAMBA2 else model.key_head_count
        window = (inner + 2 * shared * model.state_size) * (
            model.conv_width - 1 + engine.draft_len_max
        )
        pools.append(4 * engine.state_blocks * (inner * model.state_size + window))
    return int(item * parameter_count(model) + sum(pools) + max(pools))
