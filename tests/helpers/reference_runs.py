"""What the tests look at of a run of the reference."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from racegate.history.observe import Boundary
from racegate.scenario.settings import DrafterKind
from racegate.scenario.spec import OwnScenario
from racegate_reference.engine import Engine, ReferenceRun

NO_DRAFTS: dict[str, Any] = {"drafter": DrafterKind.NONE, "draft_len_max": 0}


def plans(run: ReferenceRun) -> dict[int, tuple[tuple[str, int, int], ...]]:
    """Step -> its plan, for the plans that are not empty."""
    return {step: values["plan"] for step, values in observed(run, Boundary.SCHEDULED).items()}


def observed(run: ReferenceRun, boundary: Boundary) -> dict[int, Any]:
    """Step -> the values of one boundary."""
    return {o.step: o.values for o in run.observations if o.boundary is boundary}


def iterations(of: OwnScenario) -> Iterator[Engine]:
    """The engine after each of its iterations."""
    engine = Engine(of)
    while not engine.done and engine.step < of.steps_max:
        engine.iterate()
        yield engine


def assert_same(
    first: ReferenceRun, second: ReferenceRun, *, besides: Collection[str] = ()
) -> None:
    """Both runs observed the same, in the same order, besides the named fields of either."""
    for one, other in zip(first.observations, second.observations, strict=True):
        assert (one.step, one.boundary) == (other.step, other.boundary)
        common = one.values.keys() - set(besides)
        assert common == other.values.keys() - set(besides)
        for name in common:
            value, other_value = one.values[name], other.values[name]
            if isinstance(value, np.ndarray):
                assert value.dtype == other_value.dtype, name
                np.testing.assert_array_equal(value, other_value, err_msg=name)
            else:
                assert value == other_value, name
