"""The stepwise oracle: any change of any field is found where it is, and named by its cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import pytest

from racegate.history.observe import Boundary, Observation
from racegate.oracles.stepwise import FIELDS, FLOAT_TOLERANCE, find_divergence
from support import checker

# Together they have every field there is.
SCENARIOS = (
    "offload-preempted-save",
    "fresh-blocks-zeroed",
    "drawn-drafts",
    "mrope-text",
    "cascade-synchronous",
)


def base_of(field: str) -> str:
    return field.partition(".")[0]


def change(value: object) -> object:
    """One part of it is another."""
    match value:
        case np.ndarray():
            other = value.copy()
            flat = other.reshape(-1)
            flat[-1] = not flat[-1] if value.dtype == bool else flat[-1] + 1
            return other
        case tuple():
            return (*value[:-1], "another")
        case Mapping():
            return {**value, next(iter(value)): None}
    raise AssertionError(f"{type(value)} is nothing that is compared")


def cut(value: object) -> object:
    """The last part of it is missing."""
    match value:
        case np.ndarray() | tuple():
            return value[:-1]
        case Mapping():
            return dict(list(value.items())[:-1])
    raise AssertionError(f"{type(value)} is nothing that is compared")


def lengthen(value: object) -> object:
    """There is one part more."""
    match value:
        case np.ndarray():
            return np.concatenate([value, value[-1:]])
        case tuple():
            return (*value, value[-1])
        case Mapping():
            return {**value, "nobody": next(iter(value.values()))}
    raise AssertionError(f"{type(value)} is nothing that is compared")


def is_empty(value: object) -> bool:
    return value.size == 0 if isinstance(value, np.ndarray) else not value


def replaced(
    observations: tuple[Observation, ...], place: int, **values: object
) -> tuple[Observation, ...]:
    """The observations with other values at one place."""
    changed = msgspec.structs.replace(
        observations[place], values={**observations[place].values, **values}
    )
    return (*observations[:place], changed, *observations[place + 1 :])


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("damage", [change, cut, lengthen])
def test_it_finds_any_value_that_is_changed_cut_or_lengthened(
    name: str, damage: Callable[[object], object]
) -> None:
    reference = checker(name).reference.observations
    run = checker(name).execute()
    for place, observation in enumerate(run.observations):
        for field in reference[place].values:
            if is_empty(observation.values[field]):
                continue
            observed = replaced(
                run.observations, place, **{field: damage(observation.values[field])}
            )
            found = find_divergence(observed, reference)
            assert found is not None, (observation.step, observation.boundary, field)
            assert (found.step, found.boundary) == (observation.step, observation.boundary)
            assert found.field == base_of(field)
            layer = field.partition(".")[2]
            assert found.layer == (int(layer) if layer else None)


def test_these_scenarios_have_every_field() -> None:
    seen = {
        (observation.boundary, base_of(field))
        for name in SCENARIOS
        for observation in checker(name).reference.observations
        for field, value in observation.values.items()
        if not is_empty(value)
    }
    assert seen == {(boundary, field) for boundary, fields in FIELDS.items() for field in fields}


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_field_that_is_missing_is_a_divergence(name: str) -> None:
    reference = checker(name).reference.observations
    observations = checker(name).execute().observations
    for place, observation in enumerate(observations):
        for field in reference[place].values:
            values = {k: v for k, v in observation.values.items() if k != field}
            changed = msgspec.structs.replace(observation, values=values)
            observed = (*observations[:place], changed, *observations[place + 1 :])
            found = find_divergence(observed, reference)
            assert found is not None and found.field == base_of(field)


@pytest.mark.parametrize("name", SCENARIOS)
def test_observations_that_lack_or_repeat_one_are_out_of_step(name: str) -> None:
    reference = checker(name).reference.observations
    for place in range(0, len(reference) - 1, 7):
        for observed in (
            (*reference[:place], *reference[place + 1 :]),
            (*reference[: place + 1], *reference[place:]),
        ):
            found = find_divergence(observed, reference)
            assert found is not None and found.field == "boundary"


def test_a_run_that_ends_early_or_late_is_a_divergence() -> None:
    reference = checker(SCENARIOS[0]).reference.observations
    for observed in (reference[:-1], (*reference, reference[-1])):
        found = find_divergence(observed, reference)
        assert found is not None
        assert (found.field, found.expected) == ("boundaries", len(reference))
        assert found.actual == len(observed)


def observation(boundary: Boundary, **values: object) -> Observation:
    return Observation(step=1, boundary=boundary, values=values)


ROWS = observation(Boundary.PREPARED, rows=("A", "B"), discarded=np.array([False, False]))
STARTS = {"query_start": np.array([0, 1, 3], np.int32)}


@pytest.mark.parametrize(("token", "request_name"), [(0, "A"), (1, "B"), (2, "B")])
def test_a_token_is_its_requests(token: int, request_name: str) -> None:
    right = np.array([5, 6, 7], np.int32)
    wrong = right.copy()
    wrong[token] = 0
    found = find_divergence(
        (ROWS, observation(Boundary.INPUTS, **STARTS, input_ids=wrong)),
        (ROWS, observation(Boundary.INPUTS, **STARTS, input_ids=right)),
    )
    assert found is not None
    assert (found.request, found.index) == (request_name, (token,))
    assert (found.expected, found.actual) == (right[token], 0)


def test_the_cause_is_named_before_its_effects() -> None:
    right = {"accepted": np.array([1, 2]), "positions": np.array([4, 5, 6])}
    wrong = {"accepted": np.array([1, 3]), "positions": np.array([4, 6, 7])}
    found = find_divergence(
        (ROWS, observation(Boundary.INPUTS, **STARTS, **wrong)),
        (ROWS, observation(Boundary.INPUTS, **STARTS, **right)),
    )
    assert found is not None
    assert (found.field, found.request) == ("accepted", "B")


def test_states_behind_the_agreed_tokens_are_effects_of_the_tokens() -> None:
    # One engine accepts 1 token, the other 2: they keep the same state of the first.
    right = {"state.0": np.array([[7, 8], [1, 2]]), "accepted": np.array([1, 2])}
    late = {"state.0": np.array([[7, 8], [1, 9]]), "accepted": np.array([1, 1])}
    early = {"state.0": np.array([[7, 8], [0, 9]]), "accepted": np.array([1, 1])}
    for wrong, field in ((late, "accepted"), (early, "state")):
        found = find_divergence(
            (ROWS, observation(Boundary.SAMPLED, **wrong)),
            (ROWS, observation(Boundary.SAMPLED, **right)),
        )
        assert found is not None and found.field == field


def test_a_row_in_which_the_tokens_agree_is_compared_whole() -> None:
    right = {"conv.0": np.array([[7, 8], [1, 2]]), "accepted": np.array([1, 2])}
    wrong = {"conv.0": np.array([[7, 0], [1, 2]]), "accepted": np.array([1, 1])}
    found = find_divergence(
        (ROWS, observation(Boundary.SAMPLED, **wrong)),
        (ROWS, observation(Boundary.SAMPLED, **right)),
    )
    assert found is not None
    assert (found.field, found.request, found.index) == ("conv", "A", (0, 1))
    assert found.index is not None and {type(place) for place in found.index} == {int}


def test_a_plan_that_differs_is_that_of_its_first_other_request() -> None:
    right = (("A", 4, 3), ("B", 4, 3), ("C", 1, 0))
    for wrong, name in (
        ((*right[:1], ("B", 3, 2), *right[2:]), "B"),
        (right[:2], "C"),
        ((*right, ("D", 1, 0)), "D"),
    ):
        found = find_divergence(
            (observation(Boundary.SCHEDULED, plan=wrong),),
            (observation(Boundary.SCHEDULED, plan=right),),
        )
        assert found is not None
        assert (found.request, found.expected, found.actual) == (name, right, wrong)
    rows = observation(Boundary.PREPARED, rows=("B", "A"), discarded=np.array([False, False]))
    of_all = find_divergence((rows,), (ROWS,))
    assert of_all is not None and (of_all.field, of_all.request) == ("rows", None)


@pytest.mark.parametrize(
    ("actual", "expected", "is_right"),
    [
        (1.0, 1.0 + FLOAT_TOLERANCE, True),
        (1.0, 1.0 + 3 * FLOAT_TOLERANCE, False),
        (1e4, 1e4 * (1 + FLOAT_TOLERANCE), True),
        (float("nan"), 1.0, False),
        (1.0, float("nan"), False),
        (float("nan"), float("nan"), False),
        (float("inf"), 1.0, False),
    ],
)
def test_floats_are_compared_within_a_tolerance_and_nan_with_nothing(
    actual: float,
    expected: float,
    is_right: bool,  # noqa: FBT001
) -> None:
    found = find_divergence(
        (ROWS, observation(Boundary.INPUTS, **{"state.0": np.array([[actual]], np.float32)})),
        (ROWS, observation(Boundary.INPUTS, **{"state.0": np.array([[expected]], np.float64)})),
    )
    assert (found is None) == is_right


def test_exact_values_have_no_tolerance() -> None:
    right = np.array([[1 << 31]], np.uint32)
    found = find_divergence(
        (ROWS, observation(Boundary.INPUTS, **{"state.0": right + np.uint32(1)})),
        (ROWS, observation(Boundary.INPUTS, **{"state.0": right})),
    )
    assert found is not None and found.actual == (1 << 31) + 1
