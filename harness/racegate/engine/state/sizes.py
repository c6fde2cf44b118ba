"""Sizes: the dimensions of the engine's buffers, worked out once from the scenario."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from racegate.scenario.spec import Numerics, Scenario


def ceil_div(value: int, by: int) -> int:
    return -(-value // by)


def quantity_of(numerics: Numerics) -> Any:
    """The dtype of model quantities in memory."""
    match numerics:
        case Numerics.EXACT:
            return np.uint32
        case Numerics.FLOAT32:
            return np.float32
        case Numerics.BFLOAT16:
            return ml_dtypes.bfloat16


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Dimensions of the buffers. R rows, T tokens, K drafts, M attention and C state columns of a
    table.
    """

    rows: int
    tokens: int
    drafts: int
    columns: int
    state_columns: int
    hidden: int
    numerics: Numerics

    @property
    def quantity(self) -> Any:
        """The dtype of weights, hidden states and caches."""
        return quantity_of(self.numerics)

    @property
    def state(self) -> Any:
        """The dtype of recurrent states and windows, which production keeps in float32: every step
        rounds them again.
        """
        return np.uint32 if self.numerics is Numerics.EXACT else np.float32


def sizes_of(scenario: Scenario) -> Sizes:
    engine = scenario.engine
    k = engine.draft_len_max
    state_columns = 1 + k
    if engine.cache_mode.has_columns:
        state_columns = ceil_div(engine.model_len_max + 1 + k, engine.state_interval) + k
    return Sizes(
        rows=engine.rows_max,
        tokens=engine.tokens_per_step_max,
        drafts=k,
        columns=ceil_div(engine.model_len_max + k, engine.block_size),
        state_columns=state_columns,
        hidden=scenario.model.hidden_size,
        numerics=scenario.model.numerics,
    )
