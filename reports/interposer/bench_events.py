"""What recording costs: events per CPU second, against the same program without, and memory.

    python reports/interposer/bench_events.py [--rounds N] [--repeats K] [NAME ...]

CPU time of the program's loop (`time.process_time`: all its threads), the least of the repeats;
runs with and without recording alternate. Without recording means: the same virtual device, the
same kernels on the same bytes, and nobody who watches. Not a test: no figure of time is asserted.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from bench.programs import PROGRAMS

from racegate.interpose.outcome import Ending, Outcome, Plan
from racegate.targets.program.launch import DeviceServer, Program, open_device

SCRIPT = Path(__file__).parent / "bench" / "programs.py"


def run(
    device: DeviceServer, name: str, rounds: int, *, is_recording: bool
) -> tuple[Outcome, dict[str, float]]:
    """One run of a program's loop, and what it says of itself."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        program = Program((str(SCRIPT), name, str(rounds), str(report)))
        outcome = device.run(program, Plan(is_recording=is_recording))
        if outcome.ending is not Ending.FINISHED or outcome.findings:
            raise SystemExit(f"{name}: {outcome.ending.value} {outcome.message} {outcome.findings}")
        return outcome, json.loads(report.read_text())


def measure(device: DeviceServer, name: str, rounds: int, repeats: int) -> dict[str, object]:
    """Cost of one program: least of the repeats, and how memory grows with the events."""
    with_s, without_s, events = [], [], 0
    for _ in range(repeats):
        without_s.append(run(device, name, rounds, is_recording=False)[1]["cpu_s"])
        outcome, own = run(device, name, rounds, is_recording=True)
        with_s.append(own["cpu_s"])
        events = outcome.events
    grown = {}
    for factor in (1, 2, 4):
        outcome, own = run(device, name, factor * rounds, is_recording=True)
        grown[outcome.events] = int(own["grown_kib"])
    return {
        "program": name,
        "events": events,
        "events_per_cpu_s": round(events / min(with_s)),
        "recording_over_not": round(min(with_s) / min(without_s), 2),
        "cpu_s_recording": round(min(with_s), 3),
        "cpu_s_not_recording": round(min(without_s), 3),
        "memory_kib_by_events": grown,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(PROGRAMS))
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with open_device() as device:
        for name in options.names:
            print(json.dumps(measure(device, name, options.rounds, options.repeats)), flush=True)


if __name__ == "__main__":
    sys.exit(main())
