"""Tests on a GPU: skipped with the reason where there is none, one group of tests per GPU."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from racegate.device.cuda.torch import TorchDriver, open_cuda
from racegate.jobs.environment import environment_of
from racegate.scenario.untrusted.files import write_json

REPORT = "--gpu-report"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        REPORT, metavar="FILE", help="write how many tests of each kind passed, as JSON"
    )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Counts by test function, with what they were made on."""
    path = config.getoption(REPORT)
    if path is None or hasattr(config, "workerinput"):
        return
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(outcome, ()):
            name = report.nodeid.partition("[")[0].partition("@")[0]
            counts.setdefault(name, Counter())[outcome] += 1
    device = "cuda" if why_not() is None else "virtual"
    content = {"schema": "racegate/1", "environment": environment_of(device), "tests": counts}
    write_json(Path(path), content)


def why_not() -> str | None:
    """What is missing to run on a GPU."""
    if not torch.cuda.is_available():
        return f"no GPU: torch {torch.__version__} sees none"
    try:
        import_module("cuda.bindings.driver")
    except ImportError as error:
        return f"cuda-bindings is not installed ({error}): pip install '.[gpu]'"
    return None


# First: xdist looks for groups in a hook of its own.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = why_not()
    for place, item in enumerate(items):
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if reason is not None:
                item.add_marker(pytest.mark.skip(reason=reason))
            else:
                item.add_marker(pytest.mark.xdist_group(f"gpu{place % torch.cuda.device_count()}"))


@pytest.fixture(scope="session")
def opened() -> dict[int, TorchDriver]:
    """The drivers that this process has opened, by GPU."""
    return {}


@pytest.fixture
def driver(request: pytest.FixtureRequest, opened: dict[int, TorchDriver]) -> TorchDriver:
    """The GPU of the test's group."""
    marker = request.node.get_closest_marker("xdist_group")
    index = int(marker.args[0].removeprefix("gpu"))
    if index not in opened:
        opened[index] = open_cuda(index)
    torch.cuda.set_device(index)
    return opened[index]
