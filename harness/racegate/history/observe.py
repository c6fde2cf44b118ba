"""Observation: what is true at a step boundary. Both engines produce it; the stepwise oracle
compares it.

The fields of each boundary, their shapes and the values where nothing is defined: DEFINITION
section 7.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec


class Boundary(StrEnum):
    """Where in a step an observation is made, in the order in which a step passes them."""

    SCHEDULED = "scheduled"
    PREPARED = "prepared"
    INPUTS = "inputs"
    SAMPLED = "sampled"
    PROCESSED = "processed"


class Observation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The values of one boundary of one step.

    boundary: one of `Boundary`, or a foreign engine's own
    values: field name -> tuple / dict of plain data, or a NumPy array in row or token order;
        compared.
    detail: further values of the asynchronous engine, which only its invariants look at.
    rank: whose they are, where an engine has several.
    """

    step: int
    boundary: str
    values: Mapping[str, Any]
    detail: Mapping[str, Any] = {}
    rank: int | None = None


def of_rank(observations: Iterable[Observation], rank: int = 0) -> tuple[Observation, ...]:
    """Those of one rank; all, of an engine that has no ranks."""
    return tuple([seen for seen in observations if seen.rank in (None, rank)])
