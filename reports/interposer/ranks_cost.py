"""What ranks cost: CPU time of two beside one for the same work of each, and memory of eight.

    python reports/interposer/ranks_cost.py reports/interposer/ranks_cost.json

CPU seconds are of the whole command, with all its processes, less those of the same command without
a step of training (the least of the repeats). Memory is the most that all processes had at once,
shared pages counted once (PSS). Not a test: no figure of time is asserted.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from racegate.targets.program.environment import judge_in

SCRIPT = str(Path(__file__).parent / "bench" / "ranks_train.py")
STEPS, REPEATS, LOOK_S = 60, 3, 0.2


@dataclass(frozen=True)
class Spent:
    """One command. events: of all its ranks"""

    cpu_s: float
    events: int


def main(target: str) -> None:
    """Measures both programs, and writes the figures."""
    told = {
        "torch": str(torch.__version__),
        "steps": STEPS,
        "repeats": REPEATS,
        "programs": [measured(name) for name in ("ddp", "fsdp")],
        "eight_ranks": [memory(name, 8) for name in ("ddp", "fsdp")],
    }
    Path(target).write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))


def measured(name: str) -> dict[str, object]:
    """One rank and two, each with its steps. Raises SystemExit if a run has a finding."""
    runs = [
        {(ranks, steps): spent(name, ranks, steps) for ranks in (1, 2) for steps in (0, STEPS)}
        for _ in range(REPEATS)
    ]
    best = {key: min((run[key] for run in runs), key=lambda one: one.cpu_s) for key in runs[0]}
    loop = {ranks: best[ranks, STEPS].cpu_s - best[ranks, 0].cpu_s for ranks in (1, 2)}
    events = {ranks: best[ranks, STEPS].events - best[ranks, 0].events for ranks in (1, 2)}
    return {
        "program": name,
        "cpu_s_of_start": {str(ranks): best[ranks, 0].cpu_s for ranks in (1, 2)},
        "cpu_s_of_steps": {str(ranks): round(loop[ranks], 2) for ranks in (1, 2)},
        "two_over_one": round(loop[2] / loop[1], 2),
        "whole_two_over_one": round(best[2, STEPS].cpu_s / best[1, STEPS].cpu_s, 2),
        "events_of_steps": {str(ranks): events[ranks] for ranks in (1, 2)},
        "events_per_cpu_s": {str(ranks): round(events[ranks] / loop[ranks]) for ranks in (1, 2)},
    }


def spent(name: str, ranks: int, steps: int) -> Spent:
    """One run, judged."""
    program = (SCRIPT, name, str(steps))
    judged = judge_in(Path(sys.executable), program, "--ranks", str(ranks))
    if judged.exit_code != 0:
        raise SystemExit(f"{name}, {ranks} ranks: exit code {judged.exit_code}")
    return Spent(judged.cpu_s, judged.result.stats.ops)


def memory(name: str, ranks: int) -> dict[str, object]:
    """The most memory of all processes of a command, and how it ended."""
    command = [sys.executable, "-m", "racegate", "torch", "run", "--ranks", str(ranks)]
    begun, most_kib = time.monotonic(), 0
    with tempfile.TemporaryFile() as said:
        running = subprocess.Popen([*command, SCRIPT, name, "3"], stdout=said, stderr=said)
        while running.poll() is None:
            most_kib = max(most_kib, sum(map(_pss_kib, _below(running.pid))))
            time.sleep(LOOK_S)
    return {
        "program": name,
        "ranks": ranks,
        "exit_code": running.returncode,
        "most_mib": most_kib // 1024,
        "wall_s": round(time.monotonic() - begun, 1),
    }


def _below(pid: int) -> list[int]:
    found = [pid]
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _below(int(child))
    return found


def _pss_kib(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main(sys.argv[1])
