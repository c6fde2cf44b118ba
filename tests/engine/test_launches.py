"""Launches by parameter name: a footprint that does not fit its kernel is refused before it is
issued.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np
import pytest

from racegate.device.protocol import DeviceBuffer, Use, reads, writes
from racegate.device.virtual.device import VirtualDevice
from racegate.engine.state.kernels import KernelStream, SignatureError, bound_kernel
from racegate_kernels.backend import EAGER, Backend
from racegate_kernels.numerics import Array


class Rows(NamedTuple):
    """Two arrays that go together."""

    first: Array
    second: Array


def subtract(kernels: Backend, rows: Rows, result: Array, weight: Array, *, factor: int) -> None:
    """result = (first - second) * weight * factor"""
    result[...] = (rows.first - rows.second) * weight * factor


class Place:
    """A device with a stream and three buffers."""

    def __init__(self) -> None:
        self.device = VirtualDevice(("compute",))
        self.stream = self.device.stream("compute")
        self.kernels = KernelStream(self.device, self.stream)
        self.result = self.device.device_buffer("result", (2,), np.int32, stream=self.stream)

    def constant(self, name: str, *values: int) -> DeviceBuffer:
        return self.device.constant(name, np.array(values, np.int32))

    def accesses(self) -> list[str]:
        """The buffers that operations touched, in the order of their footprints."""
        operations = [e for e in self.device.finish().events if getattr(e, "accesses", ())]
        return [access.buffer for event in operations for access in event.accesses]


def uses_of(place: Place) -> dict[str, Use]:
    return {
        "first": reads(place.constant("first", 5, 9)),
        "second": reads(place.constant("second", 3, 4)),
        "result": writes(place.result),
    }


@pytest.mark.parametrize("order", list(permutations(("first", "second", "result"))))
def test_arrays_reach_the_parameters_they_are_named_for(order: tuple[str, ...]) -> None:
    place = Place()
    uses = uses_of(place)
    place.kernels.launch_kernel(
        subtract,
        {name: uses[name] for name in order},
        name="subtract",
        step=0,
        constants={"weight": place.constant("weight", 1, 2)},
        factor=10,
    )
    assert place.accesses() == list(order)
    assert place.result.storage.array.tolist() == [20, 100]


def test_a_kernel_of_the_backend_takes_its_arrays_by_position() -> None:
    """A seeded fault's variant may call its parameters otherwise."""
    names = ("accepted", "sampled")
    call = bound_kernel("accepted_count", names, ())
    accepted, sampled = np.zeros(2, np.int32), np.array([[4, 5, -1], [7, -1, -1]], np.int32)
    call(EAGER, accepted, sampled)
    assert accepted.tolist() == [2, 1]


MISFITS = {
    "a parameter without a use": ({"first", "result", "weight"}, ("factor",), "missing second"),
    "a use without a parameter": (
        {"first", "second", "third", "result", "weight"},
        ("factor",),
        "unknown third",
    ),
    "a group by its own name": ({"rows", "result", "weight"}, ("factor",), "unknown rows"),
    "a scalar that is not given": ({"first", "second", "result", "weight"}, (), "missing factor"),
    "a scalar that nobody takes": (
        {"first", "second", "result", "weight"},
        ("factor", "width"),
        "unknown width",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_refused(case: str) -> None:
    names, scalars, said = MISFITS[case]
    with pytest.raises(SignatureError, match=f"kernel subtract: .*{said}"):
        bound_kernel(subtract, tuple(sorted(names)), scalars)


def test_a_name_given_twice_is_refused() -> None:
    """As a use and as a constant."""
    place = Place()
    with pytest.raises(SignatureError, match="subtract"):
        place.kernels.launch_kernel(
            subtract,
            uses_of(place),
            name="subtract",
            step=0,
            constants={"first": place.constant("first", 1, 1)},
            factor=1,
        )
    assert place.accesses() == []


def test_a_kernel_that_there_is_not_is_refused() -> None:
    with pytest.raises(SignatureError, match="no kernel 'accepted_counts'"):
        bound_kernel("accepted_counts", ("sampled", "accepted"), ())


def test_a_footprint_of_a_backend_kernel_is_checked_too() -> None:
    with pytest.raises(SignatureError, match=r"kernel accepted_count: .*unknown counts"):
        bound_kernel("accepted_count", ("sampled", "counts"), ())
