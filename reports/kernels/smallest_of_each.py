"""A pytest plugin for suites that take hours under an interpreter: of each test function the
parameters with the smallest product of numbers.

    PYTHONPATH=reports/kernels racegate kernels tests/modules/test_conv.py -p smallest_of_each
"""

from __future__ import annotations

from math import prod
from typing import Any


def size_of(item: Any) -> int:
    """Of a test without parameters 0."""
    spec = getattr(item, "callspec", None)
    return 0 if spec is None else prod(_sizes(list(spec.params.values())))


def _sizes(values: Any) -> list[int]:
    found = []
    for value in values:
        if isinstance(value, (list, tuple)):
            found += _sizes(value)
        elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
            found.append(value)
    return found


def pytest_collection_modifyitems(items: list[Any]) -> None:
    smallest: dict[str, Any] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name not in smallest or size_of(item) < size_of(smallest[name]):
            smallest[name] = item
    items[:] = list(smallest.values())
