"""The page of what was measured on a GPU: a folder's JSON files, read and put beside their limits.

Files of the folder, outputs of commands: `bench*.json`, `replay.json` (of several witnesses),
`soak*.json`, `ab_*.json` and, if there is one, `tests.json` (the tests' `--gpu-report`). Kept by
hand: `tuning.json`, what else was tried for a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from racegate.faults.catalogue import find_fault
from racegate.faults.fault import FaultKind
from racegate.report.templating import render
from racegate.scenario.errors import BadInputError

PAGE = "README.md"
BATCHES = (8, 64, 256)


class ReportError(BadInputError):
    """A folder without what the page needs: says which file or figure."""


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """A figure that has a limit. is_least: the limit is the least, not the most"""

    name: str
    value: float
    limit: float
    is_least: bool
    shown: str

    @property
    def is_met(self) -> bool:
        return self.value >= self.limit if self.is_least else self.value <= self.limit

    @property
    def verdict(self) -> str:
        """Whether it is met, or by how much it is not."""
        if self.is_met:
            return "yes"
        by = f", by {abs(self.value - self.limit) / self.limit:.1%}" if self.limit else ""
        return f"**no**{by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFolder:
    """What the files hold, as decoded."""

    figures: Mapping[str, Mapping[str, Any]]
    replays: Sequence[Mapping[str, Any]]
    soaks: Sequence[Mapping[str, Any]]
    comparisons: Sequence[Mapping[str, Any]]
    tuning: Sequence[Mapping[str, Any]]
    tests: Mapping[str, Mapping[str, int]]
    environments: Mapping[str, Mapping[str, str]]

    def value(self, name: str) -> float:
        """Of a benchmark's figure."""
        if name not in self.figures:
            raise ReportError(f"no bench*.json holds the figure {name}")
        return float(self.figures[name]["value"])


def load_folder(folder: Path) -> GpuFolder:
    """All files of a folder. Raises ReportError."""
    try:
        return _loaded(folder)
    except (KeyError, IndexError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ReportError(f"{folder}: a file is not what the page needs ({reason})") from error


def _loaded(folder: Path) -> GpuFolder:
    names = ("bench*.json", "soak*.json", "ab_*.json", "replay.json", "tuning.json")
    files = {name: sorted(folder.glob(name)) for name in names}
    for name, found in files.items():
        if not found:
            raise ReportError(f"{folder}: holds no {name}")
    read = {path: _read(path) for found in files.values() for path in found}
    benches, soaks, comparisons, replays, tuning = (
        [read[path] for path in files[name]] for name in names
    )
    return GpuFolder(
        figures=_figures([entry for bench in benches for entry in bench["results"]]),
        replays=replays[0]["replays"],
        soaks=soaks,
        comparisons=comparisons,
        tuning=tuning[0]["results"],
        tests=_tests(folder / "tests.json"),
        environments={path.name: _environment(content) for path, content in read.items()},
    )


def _figures(entries: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """By name. An old figure in another file must not stand for a new one."""
    found: dict[str, Mapping[str, Any]] = {}
    for entry in entries:
        name = entry["name"]
        if name in found and not name.startswith("peer_"):
            raise ReportError(f"two bench*.json hold the figure {name}: remove the older file")
        found[name] = entry
    return found


def _tests(path: Path) -> Mapping[str, Mapping[str, int]]:
    """Outcomes by test function, of the tests that need a GPU; none if they were not counted."""
    if not path.exists():
        return {}
    return {
        name.rpartition("::")[2]: counts
        for name, counts in _read(path)["tests"].items()
        if "tests/gpu/" in name
    }


def _read(path: Path) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise ReportError(f"{path}: cannot be read: {error}") from error


def _environment(content: Mapping[str, Any]) -> Mapping[str, str]:
    found = content["environment"] if "environment" in content else content["environments"][0]
    return {name: found[name] for name in sorted(found)}


def targets(folder: GpuFolder) -> list[Target]:
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


def _held_targets(folder: GpuFolder) -> list[Target]:
    ordering = [replay for replay in folder.replays if is_ordering(replay)]
    shares = [replay["outcomes"].get("reproduced", 0) / replay["times"] for replay in ordering]
    totals = [soak["total"] for soak in folder.soaks]
    stopped = [reason for soak in folder.soaks for reason in (*soak["hung"], *soak["failed"])]
    ended = sum(total["expired"] for total in totals) + len(stopped)
    wrong = sum(total["wrong"] + total["differing"] for total in totals)
    return [
        _least(f"replays reproduced, least of {len(ordering)} ordering faults", min(shares), 0.99),
        _least("held runs", float(held_runs(folder)), 10_000.0),
        _most("of them hung, failed, or ended by the watchdog", float(ended), 0.0),
        _most("runs of correct engines that were wrong or left another trace", float(wrong), 0.0),
    ]


def is_ordering(replay: Mapping[str, Any]) -> bool:
    """Whether a witness is of a fault of order."""
    return find_fault(replay["fault"]).kind is FaultKind.ORDERING


def held_runs(folder: GpuFolder) -> int:
    """Runs in which an operation stood behind a closed latch: of the soak, and replays of witnesses
    with holds that were realised.
    """
    soaked: int = sum(soak["total"]["held"] for soak in folder.soaks)
    replayed: int = sum(
        replay["outcomes"].get("reproduced", 0) for replay in folder.replays if replay["holds"]
    )
    return soaked + replayed


def _low(value: Callable[[str], float], names: Iterable[str]) -> float:
    return min(value(name) for name in names)


def _ratio(value: Callable[[str], float], names: Iterable[str]) -> float:
    return _low(value, [f"{name}_depth1_over_depth2" for name in names])


def _idle(value: Callable[[str], float], names: Iterable[str]) -> float:
    return max(value(f"{name}_depth2_idle_between_steps_share") for name in names)


def _least(name: str, value: float, limit: float) -> Target:
    shown = f"{_short(value)} (at least {_short(limit)})"
    return Target(name=name, value=value, limit=limit, is_least=True, shown=shown)


def _most(name: str, value: float, limit: float) -> Target:
    shown = f"{_short(value)} (at most {_short(limit)})"
    return Target(name=name, value=value, limit=limit, is_least=False, shown=shown)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 or value == int(value) else f"{value:.3g}"


def render_gpu(folder: GpuFolder) -> str:
    """The page."""
    shares: dict[str, dict[str, dict[tuple[int, int], float]]] = {}
    for tried in folder.tuning:
        variants = shares.setdefault(tried["kernel"], {})
        tile = tried["block_p"], tried["warps"]
        variants.setdefault(tried["variant"], {})[tile] = tried["share"]
    return render(
        "gpu.md.j2",
        folder=folder,
        shares=shares,
        targets=targets(folder),
        batches=BATCHES,
        short=_short,
        held=held_runs(folder),
        ordering=[replay for replay in folder.replays if is_ordering(replay)],
        same_bits=sum(bool(replay["matches_record"]) for replay in folder.replays),
    )
