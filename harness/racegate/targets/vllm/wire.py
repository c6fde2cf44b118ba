"""What the launcher and vLLM's process agree on, beside the tasks of
`racegate.targets.common.wire`.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import reduce

from racegate.scenario.spec import Request

REQUESTS_MAX = 30  # as many as the scripted model has tokens for
TOKENS_MAX = 512  # of one request
STOP_MIN, STOP_END = 4, 64  # tokens behind which a request may be stopped: each is said once
STEPS = (7, 57)  # from one token of the scripted model to the next, upwards or downwards
MODULUS_MAX = 1937  # of a grammar that is compiled: no more than there are tokens
DRAFTS_USUAL = 3  # of a request in a step
NGRAM_MIN, NGRAM_MAX = 2, 4  # tokens that are looked up
ANY = range(400, 10_000)  # seeds with which all that a request is sampled with is drawn from them
TEMPERATURE_MAX = 0.1  # up to which the scripted token is certain, penalties and all


class ModelRunner(StrEnum):
    """vLLM's two model runners."""

    V1 = "v1"
    V2 = "v2"


class LayerMode(StrEnum):
    """Which layers the model has. HYBRID: a recurrent one (gated delta rule) beside attention;
    GROUPS: three of these to one of attention, whose states are in several groups of blocks;
    MAMBA2: recurrent ones of that kind, as Nemotron has them, beside attention; WINDOWS: attention,
    of which one layer looks back over a window, and the others over the prompt and a window
    """

    HYBRID = "hybrid"
    GROUPS = "groups"
    MAMBA2 = "mamba2"
    ATTENTION = "attention"
    WINDOWS = "windows"

    @property
    def is_recurrent(self) -> bool:
        """Whether there are states beside keys and values."""
        return self.is_gated_delta or self is LayerMode.MAMBA2

    @property
    def is_gated_delta(self) -> bool:
        """Whether these are states of the gated delta rule."""
        return self in (LayerMode.HYBRID, LayerMode.GROUPS)


class ProposerKind(StrEnum):
    """What proposes drafts. MTP: layers of the model's own; NGRAM: what followed the last tokens
    before, which is looked up on the device; EAGLE: a model of its own, given the hidden states of
    the other; EAGLE3: likewise, given those of several layers; MODEL: one that is given tokens
    alone, and has slots of its own in a step's budget
    """

    MTP = "mtp"
    NGRAM = "ngram"
    EAGLE = "eagle"
    EAGLE3 = "eagle3"
    MODEL = "model"


class DraftMode(StrEnum):
    """Which drafts of a request that is sampled are proposed. GREEDY: the likeliest

    PROBABILISTIC: drawn from what the drafter says, which verification is given too
    """

    GREEDY = "greedy"
    PROBABILISTIC = "probabilistic"


class DraftSchedule(StrEnum):
    """How many drafts a request has in a step. FIXED: as many as asked for, in every step

    BY_BATCH: as many in small batches, and fewer in larger ones
    """

    FIXED = "fixed"
    BY_BATCH = "by-batch"


class SchedulingMode(StrEnum):
    """When a step is scheduled. ASYNC: before the output of the one before is known; SYNC: after"""

    ASYNC = "async"
    SYNC = "sync"


class CaptureMode(StrEnum):
    """What is captured as CUDA graphs when the engine starts. FULL: steps in which all decode

    FEW: likewise, but only with one row or three: two are padded, and four are more than any graph
    is for; each pass of the drafter is a graph of its own
    PIECEWISE: every model's forward pass but for attention, which is not run here
    """

    NONE = "none"
    FULL = "full"
    FEW = "few"
    PIECEWISE = "piecewise"


class ConnectorKind(StrEnum):
    """What keeps blocks in the host's memory. SIMPLE: SimpleCPUOffloadConnector, by batches of
    copies from a thread of its own; OFFLOADING: OffloadingConnector, by the engine's own operators
    FAILING: as SIMPLE, but each load is told to have failed, and its request ends with an error
    """

    NONE = "none"
    SIMPLE = "simple"
    OFFLOADING = "offloading"
    FAILING = "failing"


class PositionMode(StrEnum):
    """How many numbers a position has. TEXT: one; MROPE: three, of which images make use"""

    TEXT = "text"
    MROPE = "mrope"


class ImageMode(StrEnum):
    """What is made of a request's images. POSITIONS: their tokens' positions alone

    ENCODED: embeddings, by an encoder that is scheduled, into the prompt's places
    """

    POSITIONS = "positions"
    ENCODED = "encoded"


class ThinkingMode(StrEnum):
    """Whether requests have budgets for thinking. BUDGETS: all but the first, which thinks"""

    NONE = "none"
    BUDGETS = "budgets"


class PriorityMode(StrEnum):
    """Who is more urgent than others. NEWEST: who comes later in the scenario, so that those are
    admitted first, and the oldest request gives up its blocks
    """

    NONE = "none"
    NEWEST = "newest"


def priority_of(index: int, mode: PriorityMode) -> dict[str, int]:
    """What a request is added with, by its place in the scenario: the least is the most urgent."""
    return {"priority": -index} if mode is PriorityMode.NEWEST else {}


class AdapterMode(StrEnum):
    """Whether requests have adapters. LORA: two of three have one of two"""

    NONE = "none"
    LORA = "lora"


ADAPTERS = 2
STATE_TAGS = "state tags"  # the observation of what recurrent states were made of
_FACTOR, _TAGS = 1_000_003, 1 << 62


def seed_asked(request: Request) -> int | None:
    """The seed that a sampled request names to the release, which it need not. Two of five in ANY
    name zero, or none.
    """
    named = {0: None, 1: 0}
    return named.get(request.seed % 5, request.seed) if request.seed in ANY else request.seed


def adapter_of(index: int) -> int:
    """Which adapter a request has, by its place in the scenario: from 1, 0 for none."""
    return index % (ADAPTERS + 1)


def tag_behind(tag: int, token: int) -> int:
    """The tag of a state that goes on from another one with a token."""
    return (tag * _FACTOR + token + 1) % _TAGS


def tag_of(tokens: Iterable[int]) -> int:
    """The tag of the state behind these tokens, of which there is none before the first."""
    return reduce(tag_behind, tokens, 0)


class VocabularyMode(StrEnum):
    """How many tokens the model knows. WIDE: more than a block of the kernels that verify drafts,
    sample, penalise and mask
    """

    USUAL = "usual"
    WIDE = "wide"


class StateMode(StrEnum):
    """vLLM's `mamba_cache_mode`: how recurrent states are kept for prefixes."""

    NONE = "none"
    ALIGN = "align"
    ALL = "all"
