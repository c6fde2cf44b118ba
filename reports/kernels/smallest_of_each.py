"""A pytest plugin for suites that take hours under an interpreter: of each test function the
parameters with the smallest product of numbers, each for some seconds at most.

    PYTHONPATH=reports/kernels racegate kernels tests/modules/test_conv.py -p smallest_of_each

A file that is given by `--begun` keeps the names of the tests that began, a line for each, and a
later run leaves those out: what follows a kernel that ends the whole run is reached by the next.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--each-cpu-s-max", type=float, default=0.0)
    parser.addoption("--begun", type=Path, default=None)


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


def pytest_collection_modifyitems(config: pytest.Config, items: list[Any]) -> None:
    smallest: dict[str, Any] = {}
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name not in smallest or size_of(item) < size_of(smallest[name]):
            smallest[name] = item
    begun = config.getoption("--begun")
    known = set(begun.read_text().splitlines()) if begun is not None and begun.exists() else set()
    items[:] = [item for name, item in smallest.items() if name not in known]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: Any) -> Iterator[None]:
    begun = item.config.getoption("--begun")
    if begun is not None:
        with begun.open("a") as file:
            file.write(item.nodeid.partition("[")[0] + "\n")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: Any) -> Iterator[None]:
    """Ends a test whose time is over. What it raises is no Exception, so that the interpreter of
    kernels lets it through.
    """
    cpu_s_max = item.config.getoption("--each-cpu-s-max")

    def end(*_: object) -> None:
        pytest.fail(f"not done in {cpu_s_max:g} s of CPU time", pytrace=False)

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, cpu_s_max)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
