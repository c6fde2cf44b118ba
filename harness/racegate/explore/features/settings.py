"""What a feature is, and the settings that every scenario has one value of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from racegate.explore.features.facts import RunFacts
from racegate.scenario.settings import (
    Cascade,
    DrafterKind,
    DraftSampling,
    GraphMode,
    LayerKind,
    Layout,
    ModelPart,
    ModelSpec,
    OutputEvent,
    Planning,
    TransferMode,
    Zeroing,
)
from racegate.scenario.spec import OwnScenario

# Setting -> values that it may have.
Needs = dict[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One thing that a scenario is, or that happens in its run.

    why: what a runner engineer fears there; needs: settings without which it cannot be
    """

    name: str
    why: str
    seen: Callable[[RunFacts], bool]
    needs: Needs = field(default_factory=dict)


K_MANY = "4 or more"
SEVERAL = "several"
COORDINATES = "three-dimensional"
GROUPED, PARTIAL, WEIGHTED = "grouped", "partial", "weighted"
BIASED, GATED = "biased", "gated"
K_VALUES = ("0", "1", "2", "3", K_MANY)


def settings_of(scenario: OwnScenario) -> dict[str, str]:
    """What a scenario is set to, as far as features tell settings apart."""
    engine, layers = scenario.engine, set(scenario.model.layers)
    kinds = "hybrid"
    if LayerKind.ATTENTION not in layers:
        kinds = "recurrent only"
    elif layers == {LayerKind.ATTENTION}:
        kinds = "attention only"
    k = engine.draft_len_max
    is_column_block = engine.cache_mode.has_columns and engine.state_interval == engine.block_size
    return {
        "depth": str(engine.depth),
        "k": str(k) if k < 4 else K_MANY,
        "drafter": str(engine.drafter),
        "draft_sampling": str(engine.draft_sampling),
        "cache_mode": str(engine.cache_mode),
        "numerics": str(scenario.model.numerics),
        "graph_mode": str(engine.graph_mode),
        "transfers": str(engine.transfers),
        "zeroing": str(engine.zeroing),
        "planning": str(engine.planning),
        "layout": str(engine.layout),
        "output_event": str(engine.output_event),
        "cascade": str(engine.cascade),
        "positions": COORDINATES if scenario.model.has_mrope else "one-dimensional",
        "layers": kinds,
        "conv_width": str(scenario.model.conv_width),
        "state_interval": "1 block" if is_column_block else "more",
        "prefill_chunk_max": "below 1 + k" if engine.prefill_chunk_max <= k else "1 + k or more",
        "ranks": SEVERAL if engine.ranks > 1 else "one",
    } | _shapes_of(scenario.model)


def _shapes_of(model: ModelSpec) -> dict[str, str]:
    """Which of the shapes of real models its layers have: where no layer uses one, it has not."""
    has_attention = LayerKind.ATTENTION in model.layers
    has_mamba2 = LayerKind.MAMBA2 in model.layers
    is_grouped = (
        (has_attention and model.kv_head_count < model.heads)
        or (LayerKind.GATED_DELTA in model.layers and model.key_head_count < model.heads)
        or (has_mamba2 and model.groups > 1)
    )
    is_weighted = (
        ModelPart.NORM_WEIGHTS in model.parts
        or (has_attention and ModelPart.QK_NORM in model.parts)
        or (has_mamba2 and ModelPart.GATED_NORM in model.parts)
    )
    is_gated = has_attention and ModelPart.OUTPUT_GATE in model.parts
    is_partial = has_attention and model.rotary_width < model.head_size
    return {
        "heads": GROUPED if is_grouped else "alike",
        "rotary": PARTIAL if is_partial else "whole",
        "norms": WEIGHTED if is_weighted else "plain",
        "projections": BIASED if ModelPart.BIASES in model.parts else "plain",
        "attention": GATED if is_gated else "plain",
        "mlp": GATED if model.mlp_size else "none",
    }


def only(**values: str | tuple[str, ...]) -> Needs:
    """Settings with the values that they may have."""
    return {
        name: frozenset((value,) if isinstance(value, str) else value)
        for name, value in values.items()
    }


def counted(name: str, counter: str, why: str, needs: Needs | None = None) -> Feature:
    """A feature that the engine itself counts."""
    return Feature(name=name, why=why, seen=lambda facts: facts.counted(counter), needs=needs or {})


def happening(
    name: str, why: str, seen: Callable[[RunFacts], bool], needs: Needs | None = None
) -> Feature:
    """A feature of what went on in a run."""
    return Feature(name=name, why=why, seen=seen, needs=needs or {})


def _setting(name: str, value: str, why: str, **needs: str | tuple[str, ...]) -> Feature:
    return Feature(
        name=f"{name} = {value}",
        why=why,
        seen=lambda facts: settings_of(facts.scenario)[name] == value,
        needs=only(**{name: value}, **needs),
    )


DRAFTED = only(k=K_VALUES[1:])
DRAFTED_MORE = only(k=K_VALUES[2:])
ROWS = only(layout=str(Layout.ROWS))
SLOTS = only(layout=str(Layout.SLOTS))
DRAWN = only(k=K_VALUES[1:], drafter="mtp", draft_sampling="random")
COLUMNS = only(cache_mode=("align", "offload", "all"))
SHARED = only(cache_mode=("align", "all"))
OFFLOAD = only(cache_mode="offload")
MROPE = only(positions=COORDINATES, layers=("hybrid", "attention only"))
GRAPHS = only(graph_mode=(str(GraphMode.FULL_DECODE), str(GraphMode.PIECEWISE)))
CASCADE = only(cascade=str(Cascade.ON), layers=("hybrid", "attention only"))
PIECEWISE = only(graph_mode=str(GraphMode.PIECEWISE))
BEHIND = only(depth=("2", "3", "4"))
WIDE_CHUNKS = DRAFTED | only(prefill_chunk_max="1 + k or more")

SETTINGS = (
    _setting("depth", "1", "the synchronous control: counts are known before the next plan"),
    _setting("depth", "2", "production's default: one frame is always unknown to the plan"),
    _setting("depth", "3", "the optimism of two frames adds up, and only one is corrected"),
    _setting("depth", "4", "buffers that alternate between two steps are not enough"),
    _setting("k", "0", "no drafts: widths of 1 and empty draft arrays", drafter="none"),
    _setting("k", "1", "a row is either right or wrong, nothing in between"),
    _setting("k", "2", "width 3: rows and blocks end in different places"),
    _setting("k", "3", "width 4: a row fills a block of 4"),
    _setting("k", K_MANY, "a step crosses more than one block or column"),
    _setting("drafter", str(DrafterKind.NONE), "nothing is verified", k="0"),
    _setting(
        "drafter",
        str(DrafterKind.SCRIPTED),
        "counts as the script wants, inputs checked",
        k=K_VALUES[1:],
    ),
    _setting(
        "drafter",
        str(DrafterKind.MTP),
        "a real layer with a cache of its own, k passes",
        k=K_VALUES[1:],
    ),
    _setting(
        "drafter",
        str(DrafterKind.EXTRACT_HIDDEN_STATES),
        "its valid count is 1 on discarded rows too",
        k="1",
    ),
    _setting(
        "drafter",
        str(DrafterKind.NGRAM),
        "only the device knows how many drafts there are, if any",
        k=K_VALUES[1:],
    ),
    _setting(
        "draft_sampling",
        str(DraftSampling.RANDOM),
        "what drafts were drawn from is needed a step later",
        drafter="mtp",
        k=K_VALUES[1:],
    ),
    _setting("cache_mode", "none", "1 + k state slots in place, picked by the accepted count"),
    _setting("cache_mode", "align", "states move between columns; the host decides where"),
    _setting(
        "cache_mode", "all", "every block keeps a state; anchors say where the last step wrote"
    ),
    _setting("cache_mode", "offload", "prefixes leave and return on streams of their own"),
    _setting(
        "transfers",
        str(TransferMode.THREAD),
        "no stream can wait for a thread: the host has to, and late",
        cache_mode="offload",
    ),
    _setting(
        "transfers",
        str(TransferMode.NIC),
        "what waits for nothing is told too early",
        cache_mode="offload",
    ),
    _setting("numerics", "exact", "every bit counts"),
    _setting("numerics", "float32", "the kernels that users run, near ties included"),
    _setting(
        "graph_mode", "full_decode", "captured launches read whatever stands in their buffers"
    ),
    _setting("graph_mode", "piecewise", "captured and plain launches share a step's buffers"),
    _setting("zeroing", str(Zeroing.FRESH), "a kernel that writes blocks the host just took"),
    _setting("planning", str(Planning.SIDE_STREAM), "positions and slots from another stream"),
    _setting("layout", str(Layout.SLOTS), "what a request leaves in its slot, the next one finds"),
    _setting(
        "output_event",
        str(OutputEvent.BEFORE_DRAFTER),
        "the host goes on while the drafter still reads what the step was given",
    ),
    _setting(
        "positions",
        COORDINATES,
        "a second buffer of positions, with a correction of its own",
        layers=("hybrid", "attention only"),
    ),
    _setting("heads", GROUPED, "a head takes keys, or B and C, of the group beside its own"),
    _setting(
        "rotary",
        PARTIAL,
        "the part of a head that does not turn passes through the same kernel",
        layers=("hybrid", "attention only"),
    ),
    _setting("norms", WEIGHTED, "one norm more, with weights, between what is kept and what reads"),
    _setting("projections", BIASED, "rows without tokens are not zero any more"),
    _setting(
        "attention",
        GATED,
        "a slice of the projection is needed again behind the cache's entries",
        layers=("hybrid", "attention only"),
    ),
    _setting("mlp", GATED, "a second addition to the hidden states behind every layer"),
    _setting(
        "cascade",
        str(Cascade.ON),
        "a length that the host counts decides what every row sees",
        layers=("hybrid", "attention only"),
    ),
    _setting("layers", "attention only", "no recurrent state: all that counts select is gone"),
    _setting("layers", "recurrent only", "no cache entries: only states tell"),
    _setting("conv_width", "2", "a window of one input, shorter than a row of drafts"),
    _setting(
        "state_interval",
        "1 block",
        "every block ends a column",
        cache_mode=("align", "offload", "all"),
    ),
    _setting(
        "prefill_chunk_max", "below 1 + k", "chunks are shorter than decode rows", k=K_VALUES[1:]
    ),
    _setting(
        "ranks",
        SEVERAL,
        "a rank that decides by what it alone knows meets the others in another step",
        graph_mode=str(GraphMode.EAGER),
    ),
)
