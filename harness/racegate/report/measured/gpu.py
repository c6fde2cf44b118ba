"""The page of what was measured on a GPU: a folder's JSON files, read and put beside their limits.

Files of the folder, outputs of commands: `bench*.json`, `replay.json` (of several witnesses),
`soak*.json`, `ab_*.json` and, if there are any, `peers.json` (`bench --peers`) and `tests.json`
(the tests' `--gpu-report`). Kept by hand: `tuning.json`, what else was tried for a kernel.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from racegate.faults.catalogue import find_fault
from racegate.faults.fault import FaultKind
from racegate.history.replayed import ReplayOutcome, Replays, ReplaySummary
from racegate.jobs.soak import SoakResult
from racegate.measure.ab.summary import AbReport
from racegate.measure.bench.virtual import BenchEntry, BenchResult
from racegate.report.templating import render
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.reading import ReadError, read_json

PAGE = "README.md"
BATCHES = (8, 64, 256)
FIGURES_BYTES_MAX = 1 << 26
PEER_FIGURE = re.compile(r"(.+_k\d+)_r(\d+)_(.+?)_(share|over_own)")

T = TypeVar("T")


class ReportError(BadInputError):
    """A folder without what the page needs: says which file or figure."""


class FigureLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that has a limit. is_least: the limit is the least, not the most"""

    name: str
    value: float
    limit: float
    is_least: bool
    shown: str

    @property
    def is_met(self) -> bool:
        """Whether the figure keeps to its limit."""
        return self.value >= self.limit if self.is_least else self.value <= self.limit

    @property
    def verdict(self) -> str:
        """Whether it is met, or by how much it is not."""
        if self.is_met:
            return "yes"
        by = f", by {abs(self.value - self.limit) / self.limit:.1%}" if self.limit else ""
        return f"**no**{by}"


class TriedTile(msgspec.Struct, frozen=True, kw_only=True):
    """One line of tuning.json: a kernel, or a variant of it, with one tile.

    block_p: rows of the state in a program; share: of the copy bandwidth
    """

    kernel: str
    variant: str
    block_p: int
    warps: int
    share: float


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The file tuning.json."""

    environment: dict[str, str]
    results: tuple[TriedTile, ...]


class TestCounts(msgspec.Struct, frozen=True, kw_only=True):
    """The file tests.json. tests: by name, outcome to how often"""

    tests: dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFolder:
    """What the files hold.

    figures: of all benchmarks, by name; peers: beside kernels of others
    tests: by test function, outcome to how often
    environments: by file
    """

    figures: Mapping[str, BenchEntry]
    peers: Sequence[BenchEntry]
    replays: Sequence[ReplaySummary]
    soaks: Sequence[SoakResult]
    comparisons: Sequence[AbReport]
    tuning: Sequence[TriedTile]
    tests: Mapping[str, Mapping[str, int]]
    environments: Mapping[str, Mapping[str, str]]

    def value(self, name: str) -> float:
        """Of a benchmark's figure."""
        if name not in self.figures:
            raise ReportError(f"no bench*.json holds the figure {name}")
        return float(self.figures[name].value)


def load_folder(folder: Path) -> GpuFolder:
    """All files of a folder. Raises ReportError."""
    benches = _read_all(folder, "bench*.json", BenchResult)
    soaks = _read_all(folder, "soak*.json", SoakResult)
    comparisons = _read_all(folder, "ab_*.json", AbReport)
    replays = _read_all(folder, "replay.json", Replays)
    tuning = _read_all(folder, "tuning.json", Tuning)
    peers = [path for path in (folder / "peers.json",) if path.exists()]
    beside = {path: _read(path, BenchResult) for path in peers}
    compared = {path.name: _sorted(ab.environments[0]) for path, ab in comparisons.items()}
    return GpuFolder(
        figures=_figures([entry for bench in benches.values() for entry in bench.results]),
        peers=[entry for bench in beside.values() for entry in bench.results],
        replays=next(iter(replays.values())).replays,
        soaks=list(soaks.values()),
        comparisons=list(comparisons.values()),
        tuning=next(iter(tuning.values())).results,
        tests=_tests(folder / "tests.json"),
        environments={
            **_environments(benches),
            **_environments(beside),
            **_environments(soaks),
            **compared,
            **_environments(replays),
            **_environments(tuning),
        },
    )


def _figures(entries: Iterable[BenchEntry]) -> dict[str, BenchEntry]:
    """By name. An old figure in another file must not stand for a new one."""
    found: dict[str, BenchEntry] = {}
    for entry in entries:
        if entry.name in found and not entry.name.startswith("peer_"):
            raise ReportError(
                f"two bench*.json hold the figure {entry.name}: remove the older file"
            )
        found[entry.name] = entry
    return found


def _tests(path: Path) -> Mapping[str, Mapping[str, int]]:
    """Outcomes by test function, of the tests that need a GPU; none if they were not counted."""
    if not path.exists():
        return {}
    return {
        name.rpartition("::")[2]: counts
        for name, counts in _read(path, TestCounts).tests.items()
        if "tests/gpu/" in name
    }


def _read_all(folder: Path, pattern: str, kind: type[T]) -> dict[Path, T]:
    """The files of a pattern, at least one."""
    paths = sorted(folder.glob(pattern))
    if not paths:
        raise ReportError(f"{folder}: holds no {pattern}")
    return {path: _read(path, kind) for path in paths}


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.convert(read_json(path, FIGURES_BYTES_MAX), kind)
    except msgspec.ValidationError as error:
        raise ReportError(f"{path}: not what the page needs: {error}") from error
    except ReadError as error:
        raise ReportError(f"{path}: cannot be read: {error}") from error


class Measured(Protocol):
    """The content of a file that says where it was measured."""

    @property
    def environment(self) -> dict[str, str]:
        """Software, machine and commit."""
        ...


def _environments(files: Mapping[Path, Measured]) -> dict[str, Mapping[str, str]]:
    return {path.name: _sorted(content.environment) for path, content in files.items()}


def _sorted(environment: Mapping[str, str]) -> Mapping[str, str]:
    return {name: environment[name] for name in sorted(environment)}


def targets(folder: GpuFolder) -> list[FigureLimit]:
    """Every figure with a limit, in the order of the page."""
    value = folder.value
    large = [f"engine_large_b{batch}" for batch in BATCHES]
    small = [f"engine_small_b{batch}" for batch in BATCHES]
    counts = [f"accepted_count_{rows}_over_cat_argmax" for rows in (64, 1_024, 65_536)]
    return [
        *_held_targets(folder),
        _least("Mamba2 update, share of the copy bandwidth", value("mamba2_update_share"), 0.85),
        _least("gated delta, the same", value("gated_delta_update_share"), 0.85),
        _least("accepted count over cat + argmax, least of three sizes", _low(value, counts), 1.3),
        _least("GPU-bound: depth 1 over depth 2, least", _ratio(value, large), 1.03),
        _least("host-bound: depth 1 over depth 2, least", _ratio(value, small), 1.3),
        _most("GPU-bound: idle between steps, most", _idle(value, large), 0.02),
        _least(
            "held schedules per second, one process", value("cuda_held_schedules_per_second"), 20.0
        ),
    ]


def _held_targets(folder: GpuFolder) -> list[FigureLimit]:
    ordering = [replay for replay in folder.replays if is_ordering(replay)]
    shares = [_reproduced(replay) / replay.times for replay in ordering]
    totals = [soak.total for soak in folder.soaks]
    stopped = [reason for soak in folder.soaks for reason in (*soak.hung, *soak.failed)]
    ended = sum(total.expired for total in totals) + len(stopped)
    wrong = sum(total.wrong + total.differing for total in totals)
    return [
        _least(f"replays reproduced, least of {len(ordering)} ordering faults", min(shares), 0.99),
        _least("held runs", float(held_runs(folder)), 10_000.0),
        _most("of them hung, failed, or ended by the watchdog", float(ended), 0.0),
        _most("runs of correct engines that were wrong or left another trace", float(wrong), 0.0),
    ]


def is_ordering(replay: ReplaySummary) -> bool:
    """Whether a witness is of a fault of order."""
    return replay.fault is not None and find_fault(replay.fault).kind is FaultKind.ORDERING


def _reproduced(replay: ReplaySummary) -> int:
    """In how many replays."""
    return replay.outcomes.get(ReplayOutcome.REPRODUCED, 0)


def held_runs(folder: GpuFolder) -> int:
    """Runs in which an operation stood behind a closed latch: of the soak, and replays of witnesses
    with holds that were realised.
    """
    soaked = sum(soak.total.held for soak in folder.soaks)
    return soaked + sum(_reproduced(replay) for replay in folder.replays if replay.holds)


def _low(value: Callable[[str], float], names: Iterable[str]) -> float:
    return min(value(name) for name in names)


def _ratio(value: Callable[[str], float], names: Iterable[str]) -> float:
    return _low(value, [f"{name}_depth1_over_depth2" for name in names])


def _idle(value: Callable[[str], float], names: Iterable[str]) -> float:
    return max(value(f"{name}_depth2_idle_between_steps_share") for name in names)


def _least(name: str, value: float, limit: float) -> FigureLimit:
    shown = f"{_short(value)} (at least {_short(limit)})"
    return FigureLimit(name=name, value=value, limit=limit, is_least=True, shown=shown)


def _most(name: str, value: float, limit: float) -> FigureLimit:
    shown = f"{_short(value)} (at most {_short(limit)})"
    return FigureLimit(name=name, value=value, limit=limit, is_least=False, shown=shown)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 or value == int(value) else f"{value:.3g}"


def peer_rows(peers: Iterable[BenchEntry]) -> dict[tuple[str, str], dict[int, float]]:
    """Of each comparison, by rows of the batch: the share of the copy bandwidth, and by peer and
    release its time over that of this project.
    """
    found: dict[tuple[str, str], dict[int, float]] = {}
    for entry in peers:
        if match := PEER_FIGURE.fullmatch(entry.name):
            comparison, rows, contender, figure = match.groups()
            release = entry.detail.partition(":")[0]
            said = "share" if figure == "share" else f"time of {contender} ({release})"
            found.setdefault((comparison, said), {})[int(rows)] = entry.value
    return found


def render_gpu(folder: GpuFolder) -> str:
    """The page."""
    shares: dict[str, dict[str, dict[tuple[int, int], float]]] = {}
    for tried in folder.tuning:
        variants = shares.setdefault(tried.kernel, {})
        variants.setdefault(tried.variant, {})[tried.block_p, tried.warps] = tried.share
    return render(
        "gpu.md.j2",
        folder=folder,
        shares=shares,
        peers=peer_rows(folder.peers),
        targets=targets(folder),
        batches=BATCHES,
        short=_short,
        held=held_runs(folder),
        ordering=[replay for replay in folder.replays if is_ordering(replay)],
        same_bits=sum(replay.matches_record for replay in folder.replays),
    )
