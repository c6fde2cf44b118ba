"""All small programs of the model, and drawn ones, on the virtual device and under the recorder of
PyTorch programs.

    python reports/model/compare.py OUT.json [--length 4] [--drawn 2000] [--torch 20000]

Every program of up to so many statements goes through every schedule of the virtual device; its
outcomes, its order and its conflicts have to be the model's. Drawn programs of PyTorch are run once
each, on the virtual CUDA device; what is found has to be a conflict of the model, and nothing may
be left when all that is found is ordered. Exit code 1 if there is a difference.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import msgspec

from racegate.jobs.environment import environment_of
from racegate.scenario.untrusted.files import write_json

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests" / "helpers"))

from axioms import Program, unordered
from modelled import as_litmus, compared, drawn_program, small_programs
from modelled_torch import compared_in_torch, drawn_for_torch, opened, shown

BATCH = 100  # programs in one script


class Count(msgspec.Struct, kw_only=True):
    """Programs of one kind. differences: with the model, each with its program"""

    name: str
    programs: int = 0
    runs: int = 0
    racy: int = 0
    outcomes: int = 0
    seconds: float = 0.0
    differences: list[str] = msgspec.field(default_factory=list)


def on_device(name: str, programs: Iterable[Program]) -> Count:
    """Every schedule of each program."""
    count, begun_s = Count(name=name), time.monotonic()
    for program in programs:
        one = compared(program)
        count.programs += 1
        count.runs += one.schedules
        count.racy += one.is_racy
        count.outcomes += one.outcomes
        text = "; ".join(line for _, line in as_litmus(program))
        count.differences += [f"{text}: {difference}" for difference in one.differences]
    count.seconds = round(time.monotonic() - begun_s, 1)
    return count


def in_torch(programs: int) -> Count:
    """Drawn programs of PyTorch, a script for every hundred."""
    count, begun_s = Count(name="drawn for PyTorch"), time.monotonic()
    with opened() as device:
        for first in range(0, programs, BATCH):
            drawn = [drawn_for_torch(first + number) for number in range(BATCH)]
            count.programs += len(drawn)
            count.runs += len(drawn)
            count.racy += sum(bool(unordered(program)) for program in drawn)
            for one in compared_in_torch(device, drawn):
                count.differences.append(f"{shown(drawn[one.program])}: {one.text}")
    count.seconds = round(time.monotonic() - begun_s, 1)
    return count


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--length", type=int, default=4)
    parser.add_argument("--drawn", type=int, default=2000)
    parser.add_argument("--torch", type=int, default=20_000)
    options = parser.parse_args()
    counts = []
    for length in range(1, options.length + 1):
        counts.append(on_device(f"all of {length} statements", small_programs(length)))
    counts.append(on_device("drawn", map(drawn_program, range(options.drawn))))
    counts.append(in_torch(options.torch))
    for one in counts:
        print(
            f"{one.name}: {one.programs} programs, {one.racy} racy, {one.runs} runs, "
            f"{len(one.differences)} differences"
        )
    write_json(options.out, {"environment": environment_of("virtual"), "counts": counts})
    return int(any(one.differences for one in counts))


if __name__ == "__main__":
    sys.exit(main())
