"""What is committed of one release, runner and cache mode."""

from __future__ import annotations

from pathlib import Path

import msgspec

from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import write_json
from racegate.targets.common.landings import Holds
from racegate.targets.common.search import Effect
from racegate.targets.common.sensitivity import Sensitivity
from racegate.targets.vllm.wire import Runner, StateMode


class Conflict(StrictStruct, frozen=True, kw_only=True):
    """Two places that race, and what landings of the first do.

    first, second: kind, buffer and function; is_write: of the second; pairs: how many operations
    does: in words, the first landing that changes something; holds: that landing
    """

    first: str
    second: str
    is_write: bool
    effect: Effect
    pairs: int
    landings: int
    does: tuple[str, ...] = ()
    holds: Holds = ()


class ScenarioReport(StrictStruct, frozen=True, kw_only=True):
    """One scenario. runs: under holds; cpu_s: of the processes of all runs
    wrong: in the run in which nothing was held; commit: of racegate, when it was measured
    """

    verdict: str
    steps: int
    events: int
    runs: int
    is_complete: bool
    cpu_s: float
    commit: str = ""
    unmet: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()
    message: str = ""
    not_seen: tuple[str, ...] = ()
    conflicts: tuple[Conflict, ...] = ()


class CellReport(StrictStruct, frozen=True, kw_only=True):
    """cannot: why nothing could be run, the first line of the release's own error
    sensitivity: whether a planted wrong value changes each observation
    """

    release: str
    runner: Runner
    mode: StateMode
    python: str
    torch: str = ""
    cannot: str = ""
    sensitivity: Sensitivity = msgspec.field(default_factory=dict)
    scenarios: dict[str, ScenarioReport] = msgspec.field(default_factory=dict)


def read_cell(path: Path) -> CellReport | None:
    """None if there is none yet."""
    if not path.exists():
        return None
    return msgspec.json.decode(path.read_bytes(), type=CellReport)


def write_cell(path: Path, report: CellReport) -> None:
    """A file that is whole at every moment."""
    write_json(path, report)
