"""Releases that need no installation: a small engine in the place of each that is opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

from racegate.interpose.outcome import Plan
from racegate.jobs.foreign.releases import OpenedEngine
from racegate.scenario.spec import Scenario
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.client import RUN_S, Engine
from racegate.targets.common.wire import ReleaseRun
from small_engine import SmallEngine, Wait


class SmallReleases:
    """In the place of `open_release`. wait: where the host of every engine waits

    calm: ends of the names of scenarios in which it waits before
    cells, limits: of the engines that were opened; scenarios: names of those that were run
    """

    def __init__(self, wait: Wait, *, calm: tuple[str, ...] = ()) -> None:
        self.wait = wait
        self.calm = calm
        self.cells: list[EngineCell] = []
        self.limits: list[float] = []
        self.scenarios: list[str] = []

    @contextmanager
    def __call__(
        self,
        cell: EngineCell,
        *,
        log: Path | None = None,
        run_s: float = RUN_S,
        count: int = 1,
    ) -> Iterator[OpenedEngine]:
        self.cells.append(cell)
        self.limits.append(run_s)
        engine = cast(Engine, SimpleNamespace(start_s=0.0, cpu_s=0.0))
        siblings = (OpenedEngine(cell, self, engine, dict),) * (count - 1)
        yield OpenedEngine(cell, self, engine, dict, siblings)

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        """As a release answers."""
        self.scenarios.append(scenario.name)
        is_calm = scenario.name.endswith(self.calm)
        return SmallEngine(Wait.BEFORE if is_calm else self.wait).run(plan)


class TwoReleases(SmallReleases):
    """A checkout waits elsewhere than its release. changed: where the checkout's host waits"""

    def __init__(self, base: Wait, changed: Wait) -> None:
        super().__init__(base)
        self.of_checkout = SmallReleases(changed)

    @contextmanager
    def __call__(
        self,
        cell: EngineCell,
        *,
        log: Path | None = None,
        run_s: float = RUN_S,
        count: int = 1,
    ) -> Iterator[OpenedEngine]:
        with super().__call__(cell, log=log, run_s=run_s, count=count) as opened:
            runs = opened.runs if cell.checkout is None else self.of_checkout
            yield replace(opened, runs=runs, siblings=())


def cached_release(cache: Path, release: str) -> Path:
    """A release of vLLM that is set up, as far as its files say; returns its site-packages.

    cache: the user's cache directory
    """
    environment = cache / "racegate" / "vllm" / release
    site = environment / "lib" / "python3.11" / "site-packages"
    Path(site, "torch-2.14.1.dist-info").mkdir(parents=True)
    (environment / "racegate-done").write_text(f"{release}\n")
    return site
