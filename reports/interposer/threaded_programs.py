"""Drawn programs of two host threads and up to three streams: racegate's verdict against what every
interleaving of the threads and every order of the streams says.

    python reports/interposer/threaded_programs.py [--first SEED] [--programs N] OUT.json

A program is run once, its threads in a drawn order. Whatever locks, queues, flags and events are
come to in that order, a pair of accesses that conflicts and comes in both orders has to be found:
else it is a wrong pass. What is found has to come in both orders in some order of the threads: else
it is a false finding. Exit code 1 if there is one of either.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from enum import StrEnum
from pathlib import Path

import msgspec

from racegate.interpose.outcome import Ending, Plan
from racegate.scenario.untrusted.files import write_json
from racegate.targets.program.launch import DeviceServer, Program, open_device

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from drawn_threads import Drawer, Drawn, truth_of

SCRIPT = ROOT / "tests" / "interpose" / "threaded_one.py"


class Standing(StrEnum):
    """What became of a program. BY_ORDER: it races, but only where its threads come to a lock,
    queue, flag or event in another order than in this run, and nothing was found
    """

    RACE = "race, found"
    SILENT = "no race, nothing found"
    BY_ORDER = "race in another order of the threads only"
    WRONG_PASS = "wrong pass"
    FALSE = "false finding"
    NOT_RUN = "not run"


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One program. states: how many there are between its beginning and end; text: what is wrong"""

    seed: int
    standing: Standing
    states: int
    text: str = ""


def judged(device: DeviceServer, seed: int) -> Row:
    """Draws a program, runs it, and compares."""
    drawer = Drawer(seed)
    drawn = drawer.draw()
    anyhow = truth_of(drawn, streams=drawer.streams)
    as_run = truth_of(drawn, streams=drawer.streams, order=drawn.order)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "program.json"
        file.write_bytes(msgspec.json.encode(drawn))
        program = Program((str(SCRIPT), str(file), str(drawer.streams)), timeout_s=60)
        outcome = device.run(program, Plan(), is_quiet=True)
    text = outcome.message
    if outcome.ending is not Ending.FINISHED:
        standing = Standing.NOT_RUN
    elif outcome.findings:
        standing = Standing.RACE if anyhow.races else Standing.FALSE
        text = "; ".join(f"{race.first.label} and {race.second.label}" for race in outcome.findings)
    elif as_run.races:
        standing = Standing.WRONG_PASS
    else:
        standing = Standing.BY_ORDER if anyhow.races else Standing.SILENT
    is_right = standing in (Standing.RACE, Standing.SILENT, Standing.BY_ORDER)
    shown = "" if is_right else f"{text}\n{shown_as(drawn)}"
    return Row(seed=seed, standing=standing, states=anyhow.states, text=shown)


def shown_as(drawn: Drawn) -> str:
    """The program, statement by statement, in the order of its threads."""
    at, lines = [0, 0], []
    for thread in drawn.order:
        one = drawn.threads[thread][at[thread]]
        at[thread] += 1
        named = {name: value for name, value in msgspec.structs.asdict(one).items() if value != -1}
        words = " ".join(f"{name} {value}" for name, value in named.items() if name != "kind")
        lines.append(f"  {'main' if thread == 0 else '    worker'}  {one.kind} {words}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--programs", type=int, default=1000)
    options = parser.parse_args()
    begun_s, rows = time.monotonic(), []
    with open_device() as device:
        for seed in range(options.first, options.first + options.programs):
            rows.append(judged(device, seed))
            if rows[-1].text:
                print(f"seed {seed}: {rows[-1].standing}: {rows[-1].text}", flush=True)
    counts = Counter(row.standing.value for row in rows)
    states = sum(row.states for row in rows)
    write_json(
        options.out,
        {
            "first": options.first,
            "programs": len(rows),
            "states": states,
            "seconds": round(time.monotonic() - begun_s, 1),
            "standings": {kind.value: counts[kind.value] for kind in Standing},
            "wrong": [row for row in rows if row.text],
        },
    )
    for kind in Standing:
        print(f"{counts[kind.value]:6} {kind.value}")
    return any(row.text for row in rows)


if __name__ == "__main__":
    sys.exit(main())
