"""What of the forward pass can be exchanged, and what a correct engine has there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from racegate.engine.model.padding import Padding, is_uniform_decode


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParts:
    """dispatch: whether a step may replay a graph; padding: how its batch is filled up then."""

    dispatch: Callable[..., bool] = is_uniform_decode
    padding: Callable[..., Padding] = Padding
