"""What is compared: the arms, and waves of requests that queue, enter, decode and leave.

Tokens of an exact model are as good as random, so a request that stops at a given token has a
length with a geometric distribution, whose mean is the size of the vocabulary.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from racegate.faults.catalogue import find_fault
from racegate.faults.fault import Fault
from racegate.scenario.draws import draw
from racegate.scenario.errors import BadInputError
from racegate.scenario.settings import CacheMode, DrafterKind, EngineSpec, GraphMode, ModelSpec
from racegate.scenario.spec import REQUESTS_MAX, OwnScenario, Request
from racegate.scenario.strict import StrictStruct

GENERATIONS = 20_480
WAVE = REQUESTS_MAX
ROWS = 64
MAX_TOKENS = 512
VOCAB_SIZE = 400
CHECKED = 64

PROMPT_MIN, PROMPT_MAX = 8, 48
DRAFTS = 3
BLOCK_SIZE = 16
INTERVAL = 32
# Any token will do: all are equally likely.
STOP_TOKEN = 7


class AbError(BadInputError):
    """An A/B run that cannot be made, or a folder that cannot be used: says why."""


class ModelSize(StrEnum):
    """How long a step takes the GPU: with a tiny model it waits for the host, with a huge one the
    host waits for it. Few layers, so that the host has little to launch.
    """

    TINY = "tiny"
    SMALL = "small"
    LARGE = "large"
    HUGE = "huge"


SIZES = {
    ModelSize.TINY: ModelSpec(hidden_size=8, heads=2, head_size=4, state_size=4),
    ModelSize.SMALL: ModelSpec(hidden_size=64, heads=4, head_size=16, state_size=16),
    ModelSize.LARGE: ModelSpec(hidden_size=1024, heads=16, head_size=64, state_size=64),
    ModelSize.HUGE: ModelSpec(hidden_size=2048, heads=32, head_size=64, state_size=64),
}


class Arm(StrEnum):
    """Engines to compare. TRUTH decodes plainly, as nearly as this engine can: every other arm is
    compared with it.
    """

    TRUTH = "truth"
    FAULT_FREE = "fault-free"
    COPY_AFTER_ROW_MOVE = "accepted-copy-after-row-move"
    DOUBLE_REMAP = "accepted-double-remap"
    NO_SPECULATION = "no-speculation"
    DEPTH_ONE = "depth-1"
    GRAPHS_OFF = "graphs-off"
    GRAPHS_PIECEWISE = "graphs-piecewise"
    COPY_NO_SPECULATION = "accepted-copy-after-row-move/no-speculation"
    COPY_DEPTH_ONE = "accepted-copy-after-row-move/depth-1"
    COPY_GRAPHS_OFF = "accepted-copy-after-row-move/graphs-off"
    REMAP_NO_SPECULATION = "accepted-double-remap/no-speculation"
    REMAP_DEPTH_ONE = "accepted-double-remap/depth-1"
    REMAP_GRAPHS_OFF = "accepted-double-remap/graphs-off"

    @property
    def fault(self) -> Fault | None:
        """What is wrong with the engine."""
        name = self.value.split("/")[0]
        return find_fault(name) if name.startswith("accepted-") else None

    @property
    def changes(self) -> dict[str, object]:
        """How its configuration differs from that of the fault-free arm."""
        return CHANGES.get(self.value.split("/")[-1], {})


_PLAIN = {"drafter": DrafterKind.NONE, "draft_len_max": 0}
CHANGES: dict[str, dict[str, object]] = {
    "no-speculation": _PLAIN,
    "depth-1": {"depth": 1},
    "graphs-off": {"graph_mode": GraphMode.EAGER},
    "graphs-piecewise": {"graph_mode": GraphMode.PIECEWISE},
    "truth": {
        **_PLAIN,
        "depth": 1,
        "graph_mode": GraphMode.EAGER,
        "cache_mode": CacheMode.NONE,
    },
}

# Run if no others are asked for. The controls on top of a fault are run by name.
ARMS = tuple(arm for arm in Arm if arm is not Arm.TRUTH and "/" not in arm.value)


class AbSpec(StrictStruct, frozen=True, kw_only=True):
    """What all arms have in common. A folder belongs to one plan.

    rows: decoded side by side; max_tokens: of a generation; vocab_size: the mean length of one
    size: of the model
    wave: requests of one run of the engine, the last run perhaps with fewer
    cache_mode: in align mode every accepted count travels over the host; without prefix caching
        they stay on the device, but for an arm whose fault sends them over the host
    checked: generations of the truth that are compared with the CPU reference
    """

    device: str
    generations: int = GENERATIONS
    wave: int = WAVE
    rows: int = ROWS
    max_tokens: int = MAX_TOKENS
    vocab_size: int = VOCAB_SIZE
    size: ModelSize = ModelSize.TINY
    cache_mode: CacheMode = CacheMode.ALIGN
    checked: int = CHECKED
    seed: int = 0

    @property
    def waves(self) -> int:
        """How many there are."""
        return -(-self.generations // self.wave)

    def indices(self, wave: int) -> range:
        """The generations of a wave."""
        return range(wave * self.wave, min((wave + 1) * self.wave, self.generations))

    def checked_in(self, wave: int) -> tuple[int, ...]:
        """Those that are compared with the CPU reference: spread evenly over all."""
        count = min(self.checked, self.generations)
        chosen = {number * self.generations // count for number in range(count)}
        return tuple(index for index in self.indices(wave) if index in chosen)


def scenario_of(plan: AbSpec, wave: int, arm: Arm) -> OwnScenario:
    """One run of the engine. It is not validated: it is bounded, and larger than a file may be."""
    model = msgspec.structs.replace(
        SIZES[plan.size], vocab_size=plan.vocab_size, seed=1 + plan.seed
    )
    return OwnScenario(
        name=f"ab-{wave}",
        title=f"wave {wave} of {plan.waves}",
        seed=plan.seed,
        steps_max=_steps_max(plan),
        model=model,
        engine=engine_of(plan, arm),
        requests=tuple(_request(plan, index) for index in plan.indices(wave)),
    )


def _steps_max(plan: AbSpec) -> int:
    """Enough for a token a step in every row, and as much again: what takes longer hangs."""
    return 2 * (plan.max_tokens + 4) * (1 + -(-plan.wave // plan.rows))


def engine_of(plan: AbSpec, arm: Arm) -> EngineSpec:
    """Rows decode through graphs, and all of them find blocks."""
    longest = PROMPT_MAX + plan.max_tokens
    most = -(-(longest + 2 * (1 + DRAFTS)) // INTERVAL) * INTERVAL
    spec = EngineSpec(
        depth=2,
        draft_len_max=DRAFTS,
        drafter=DrafterKind.SCRIPTED,
        cache_mode=plan.cache_mode,
        rows_max=plan.rows,
        # Where all rows decode there is room for one prompt beside them, but not for all.
        tokens_per_step_max=(1 + DRAFTS) * plan.rows + 2 * INTERVAL,
        prefill_chunk_max=INTERVAL,
        block_size=BLOCK_SIZE,
        blocks=1 + plan.rows * (1 + most // BLOCK_SIZE),
        state_blocks=1 + plan.rows * (1 + most // INTERVAL + DRAFTS),  # enough in every mode
        state_interval=INTERVAL,
        model_len_max=most,
        graph_mode=GraphMode.FULL_DECODE,
        capture_rows=_capture_rows(plan.rows),
    )
    return msgspec.structs.replace(spec, **arm.changes)


def _capture_rows(rows: int) -> tuple[int, ...]:
    """Powers of two from 4 on, and all rows."""
    return (*(size for size in (4, 8, 16, 32, 64, 128) if size < rows), rows)


def _request(plan: AbSpec, index: int) -> Request:
    """Generation `index`; it depends on nothing but the seed and the vocabulary."""
    label = f"ab:{index}"
    length = PROMPT_MIN + draw(plan.seed, f"{label}:length", 0) % (PROMPT_MAX - PROMPT_MIN + 1)
    rounds = 3 + draw(plan.seed, f"{label}:rounds", 0) % 6
    return Request(
        name=f"g{index}",
        arrive=0,
        prompt=tuple(draw(plan.seed, label, i) % plan.vocab_size for i in range(length)),
        max_tokens=plan.max_tokens,
        stop_token=STOP_TOKEN,
        accepts=tuple(
            1 + draw(plan.seed, f"{label}:accepts", i) % (1 + DRAFTS) for i in range(rounds)
        ),
    )


def truth_table(
    scenario: OwnScenario, delivered: tuple[tuple[int, ...], ...]
) -> dict[str, tuple[int, ...]]:
    """What the scripted drafter drafts from: prompt and tokens of each request. Behind its end
    drafts do not matter, and stand for nothing.
    """
    length = scenario.engine.model_len_max + scenario.engine.draft_len_max + 2
    table = {}
    for request, tokens in zip(scenario.requests, delivered, strict=True):
        known = request.prompt + tokens
        table[request.name] = known + (0,) * (length - len(known))
    return table
