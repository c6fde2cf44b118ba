"""What of the forward pass can be exchanged, and what a correct engine has there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from racegate.engine.model.bound import Bound
from racegate.engine.model.padding import Padding, is_uniform_decode
from racegate.engine.state.setup import Setup
from racegate.engine.state.view import StepView


class Dispatch(Protocol):
    """Whether a step may replay a graph. width: 1 + K."""

    def __call__(self, view: StepView, *, width: int) -> bool: ...


class MakePadding(Protocol):
    """Makes what fills batches up. live: what steps prepare; sizes: rows of the graphs."""

    def __call__(self, setup: Setup, live: Bound, *, sizes: tuple[int, ...]) -> Padding: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    """dispatch: which steps replay; padding: how their batches are filled up."""

    dispatch: Dispatch = is_uniform_decode
    padding: MakePadding = Padding
