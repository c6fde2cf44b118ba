"""What of the forward pass can be exchanged, and what a correct engine has there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from racegate.engine.model.bound import BoundBuffers
from racegate.engine.model.cascade import CommonPrefix, common_prefix
from racegate.engine.model.padding import MixedPadding, Padding, fits, is_uniform_decode
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import BatchShape, StepView


class Dispatch(Protocol):
    """Whether a step may replay a graph of the whole pass. width: 1 + K."""

    def __call__(self, view: StepView, *, width: int) -> bool: ...


class FitCheck(Protocol):
    """Whether a batch fits graphs of `size` rows. width: 1 + K, the tokens of each."""

    def __call__(self, shape: BatchShape, size: int, *, width: int) -> bool: ...


class MakePadding(Protocol):
    """Makes what fills batches up. live: what steps prepare; sizes: rows of the graphs."""

    def __call__(self, setup: Setup, live: BoundBuffers, *, sizes: tuple[int, ...]) -> Padding: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    """dispatch: which steps replay all of the pass; fits: into which graphs
    padding: how their batches are filled up; mixed_padding: those of which pieces are replayed
    common_prefix: what attention treats by itself
    """

    dispatch: Dispatch = is_uniform_decode
    fits: FitCheck = fits
    padding: MakePadding = Padding
    mixed_padding: MakePadding = MixedPadding
    common_prefix: Callable[[Setup], CommonPrefix] = common_prefix
