"""Sizes: the dimensions of the engine's buffers, worked out once from the scenario."""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from racegate.scenario.settings import CacheMode, EngineSpec, Numerics
from racegate.scenario.spec import OwnScenario


def ceil_div(value: int, by: int) -> int:
    """The quotient, rounded up."""
    return -(-value // by)


def quantity_of(numerics: Numerics) -> DTypeLike:
    """The dtype of model quantities in memory."""
    match numerics:
        case Numerics.EXACT:
            return np.uint32
        case Numerics.FLOAT32:
            return np.float32
        case Numerics.BFLOAT16:
            dtype: DTypeLike = ml_dtypes.bfloat16
            return dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Dimensions of the buffers. R rows, T tokens, K drafts, M attention and C state columns of a
    table. drawn_vocab: V where drafts are drawn, else 0. window: blocks of a row's running states,
    1 + K; in cache mode all one for every token and one for the state that the row starts from
    """

    rows: int
    tokens: int
    drafts: int
    columns: int
    state_columns: int
    window: int
    hidden: int
    numerics: Numerics
    drawn_vocab: int

    @property
    def quantity(self) -> DTypeLike:
        """The dtype of weights, hidden states and caches."""
        return quantity_of(self.numerics)

    @property
    def state(self) -> DTypeLike:
        """The dtype of recurrent states and windows, which production keeps in float32: every step
        rounds them again.
        """
        return np.uint32 if self.numerics is Numerics.EXACT else np.float32

    @property
    def draft_weight(self) -> DTypeLike:
        """The dtype of what drafts are drawn from."""
        return np.int32 if self.numerics is Numerics.EXACT else np.float32


def sizes_of(scenario: OwnScenario) -> Sizes:
    """The dimensions of an engine that can run a scenario."""
    engine = scenario.engine
    drafts = engine.draft_len_max
    state_columns = 1 + drafts
    if engine.cache_mode.has_columns:
        state_columns = ceil_div(engine.model_len_max + 1 + drafts, engine.state_interval) + drafts
    return Sizes(
        rows=engine.rows_max,
        tokens=engine.tokens_per_step_max,
        drafts=drafts,
        columns=ceil_div(engine.model_len_max + drafts, engine.block_size),
        state_columns=state_columns,
        window=_window(engine),
        hidden=scenario.model.hidden_size,
        numerics=scenario.model.numerics,
        drawn_vocab=scenario.model.vocab_size if engine.draws_drafts else 0,
    )


def _window(engine: EngineSpec) -> int:
    width = 1 + engine.draft_len_max
    if engine.cache_mode is not CacheMode.ALL:
        return width
    return 1 + min(engine.tokens_per_step_max, max(width, engine.prefill_chunk_max))
