"""What full deferral costs: CPU time of a program with everything held, against nothing held.

    python reports/interposer/bench_deferral.py [--repeats K] SCRIPT [ARGS]

CPU time of the program's process and its threads, from its fork after torch was imported to its
end; the least of the repeats. No run is recorded. Not a test: no figure of time is asserted.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from racegate.history.schedule import Hold
from racegate.interpose.outcome import Ending, Plan
from racegate.targets.program.launch import DeviceServer, Program, checked_program, open_device

PLANS = {
    "nothing_held": Plan(is_recording=False),
    "everything_held": Plan(holds=(Hold(op="everything"),), is_recording=False),
    "recorded": Plan(),
}


def cpu_s_of_children(pid: int) -> float:
    """CPU time of the children that a process has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def cpu_s(device: DeviceServer, program: Program, plan: Plan) -> tuple[float, int]:
    """(CPU time of one run, how many operations its holds kept back)."""
    before = cpu_s_of_children(device._process.pid)
    outcome = device.run(program, plan, is_quiet=True)
    if outcome.ending is not Ending.FINISHED:
        raise SystemExit(f"{outcome.ending.value}: {outcome.message}")
    return cpu_s_of_children(device._process.pid) - before, sum(outcome.realised.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("script", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    program = checked_program(tuple(options.script))
    found: dict[str, float] = {}
    with open_device() as device:
        for name, plan in PLANS.items():
            runs = [cpu_s(device, program, plan) for _ in range(options.repeats)]
            found[f"cpu_s_{name}"] = round(min(run[0] for run in runs), 2)
            found["operations_held"] = max(found.get("operations_held", 0), runs[0][1])
    ratio = found["cpu_s_everything_held"] / found["cpu_s_nothing_held"]
    print(json.dumps({"program": options.script, **found, "held_over_not": round(ratio, 2)}))


if __name__ == "__main__":
    sys.exit(main())
