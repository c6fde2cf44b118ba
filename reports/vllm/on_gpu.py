"""Cells of the table on a real GPU: a witness's landing, held by a latch on real streams.

    python reports/vllm/on_gpu.py OUT.json [RELEASE:WITNESS ...]

Each is run without and with its hold, in engines of its own; those that are named, else all of
CELLS. Exit 1 if a cell is not as expected.
"""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from racegate.history.finding import Verdict
from racegate.interpose.errors import BadInput
from racegate.interpose.outcome import DeviceKind, Plan
from racegate.jobs.versions.cells import pairs_of
from racegate.scenario.spec import Scenario
from racegate.scenario.untrusted.files import write_json
from racegate.targets.common.judge import judge_under
from racegate.targets.common.result import wrong_lines
from racegate.targets.common.wire import ReleaseRun
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.engine import FreshEngines
from racegate.targets.vllm.witness import VLLM_WITNESSES

WITNESSES = Path(__file__).parents[2] / "scenarios" / "vllm" / "witnesses"
COUNT = "0.22.1-v1-none-first_decode_in_moved_row-1"


class GpuCell(msgspec.Struct, frozen=True):
    """One landing. is_harm: whether it does harm in this release"""

    release: str
    witness: str
    is_harm: bool


CELLS = (
    GpuCell("0.22.1", COUNT, is_harm=True),
    GpuCell("0.24.0", COUNT, is_harm=False),
    GpuCell("0.24.0", "0.24.0-v1-align-first_decode_in_moved_row-1", is_harm=True),
    GpuCell("0.24.0", "0.24.0-v2-none-fresh_blocks_in_consecutive_steps-1", is_harm=True),
)


class Kept:
    """Runs, of which each is kept."""

    def __init__(self, engines: FreshEngines) -> None:
        self._engines = engines
        self.told: list[ReleaseRun] = []

    def run(self, scenario: Scenario, plan: Plan) -> ReleaseRun:
        self.told.append(self._engines.run(scenario, plan))
        return self.told[-1]


def judge_cell(one: GpuCell, folder: Path) -> dict[str, Any]:
    """What the landing did on this GPU."""
    witness = VLLM_WITNESSES.load(WITNESSES / f"{one.witness}.json")
    cell = Cell(release=one.release, runner=witness.subject.runner, mode=witness.subject.mode)
    log = folder / f"{one.release}-{cell.runner}-{cell.mode}.log"
    known = {
        **msgspec.structs.asdict(one),
        "runner": cell.runner,
        "mode": cell.mode,
        "hold": pairs_of(witness.landing),
    }
    try:
        engines = Kept(FreshEngines(cell, log=log))
        judged = judge_under(engines, witness.scenario, cell, witness.landing, kind=DeviceKind.CUDA)
    except BadInput as error:
        return {**known, "error": str(error), "log": _end_of(log)}
    base, held = engines.told
    return {
        **known,
        "verdict": judged.verdict,
        "unmet": judged.unmet,
        "message": judged.message,
        "nothing held": wrong_lines(base),
        "held": wrong_lines(held),
        "realised": held.realised,
        "tokens are those of plain decoding": held.delivered == held.plain,
        "not seen": held.not_seen,
        "counters": held.counters,
        "torch": held.torch_version,
        "log": _end_of(log) if judged.verdict is Verdict.INCONCLUSIVE else "",
        "observed": {"nothing held": _observed(base), "held": _observed(held)},
    }


def _observed(told: ReleaseRun) -> list[str]:
    return [f"{one.name}: {one.preview}" for one in told.observations]


def _end_of(log: Path) -> str:
    return log.read_text()[-3000:] if log.exists() else ""


def is_as_expected(found: dict[str, Any]) -> bool:
    """Wrong where the landing does harm, as it was without the hold where it does none."""
    expected = Verdict.DIVERGENT if found["is_harm"] else Verdict.BENIGN
    return bool(found.get("verdict") == expected and not found["nothing held"])


def main() -> int:
    """Judges the cells side by side and writes what they gave."""
    out = Path(sys.argv[1])
    out.parent.mkdir(parents=True, exist_ok=True)
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu = subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()
    names = set(sys.argv[2:])
    chosen = [c for c in CELLS if not names or f"{c.release}:{c.witness}" in names]
    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda cell: judge_cell(cell, out.parent), chosen))
    write_json(out, {"gpu": gpu, "cells": found})
    for one in found:
        says = one.get("verdict") or one["error"]
        print(one["release"], one["runner"], one["mode"], says, one.get("held"))
    return 0 if all(map(is_as_expected, found)) else 1


if __name__ == "__main__":
    sys.exit(main())
