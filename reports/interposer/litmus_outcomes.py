"""What the litmus programs may observe: every outcome that the virtual device's search comes to.

    python reports/interposer/litmus_outcomes.py [--jobs N] [--more N] OUT.json [NAME ...]

The search ends at the first landing that changes a value; `--more` tries as many combinations of
landings beyond it. Programs that OUT.json has already are left as they are, unless they are named.

`litmus_recorded_gpu.py` compares a real GPU with it, and takes its holds from it.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import threading
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from racegate.history.schedule import Hold, Holds
from racegate.interpose.device.touches import QUERIES
from racegate.interpose.outcome import Ending, Outcome, Plan
from racegate.scenario.untrusted.files import write_json
from racegate.targets.common.search import POLLS
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program, open_device

LITMUS = Path(__file__).parents[2] / "tests" / "interpose"
RUNS_MAX = 24
Values = list[list[str]]  # [name, what was observed]


class Collecting:
    """A device that remembers what each run observed, by its holds."""

    def __init__(self, device: DeviceServer) -> None:
        self._device = device
        self.kind = device.kind
        self.seen: list[dict[str, Any]] = []

    def run(self, program: Program, plan: Plan, *, is_quiet: bool = False) -> Outcome:
        outcome = self._device.run(program, plan, is_quiet=is_quiet)
        self.seen.append({"holds": as_pairs(plan.holds), "values": values_of(outcome)})
        return outcome


def values_of(outcome: Outcome) -> Values:
    """What a run observed, and its end if it failed."""
    seen = [[item.name, item.preview] for item in outcome.observations]
    return seen if outcome.ending is Ending.FINISHED else [*seen, ["ended", outcome.message]]


def as_pairs(holds: Holds) -> tuple[tuple[str, str], ...]:
    """Holds as they stand in the file: what is held, and until when."""
    return tuple((hold.operation, hold.until) for hold in holds)


def pairs_of(outcome: Outcome) -> list[str]:
    """The findings, as another run and another device name them."""
    sides = [
        (f.first.label.rpartition("#")[0], f.second.label.rpartition("#")[0])
        for f in outcome.findings
    ]
    return sorted({f"{first} / {second}" for first, second in sides})


def combinations(outcome: Outcome) -> Iterator[Holds]:
    """Every operation that can be held, until each access that may come before it.

    An access of a later round may too, though only the last one of a stream is remembered.
    """
    landings: dict[str, list[str]] = {}
    for finding in outcome.findings:
        if not finding.first.is_host:
            seconds = list(dict.fromkeys(second for _, second in finding.pairs))
            for first, second in finding.pairs:
                landings.setdefault(first, ["forced"]).extend(seconds[seconds.index(second) :])
    unique = {first: list(dict.fromkeys(untils)) for first, untils in landings.items()}
    choices = [
        [None, *(Hold(op=first, until=until) for until in untils)]
        for first, untils in unique.items()
    ]
    for chosen in product(*choices):
        yield tuple(hold for hold in chosen if hold is not None)


def outcomes_of(device: DeviceServer, theme: str, name: str, *, more: int) -> dict[str, Any]:
    """One program, judged and searched. more: runs beyond the search."""
    program = Program((str(LITMUS / "litmus_one.py"), theme, name), timeout_s=120)
    collecting: Any = Collecting(device)
    judged = judge_on(collecting, program, explores=True, runs_max=RUNS_MAX, is_quiet=True)
    tried = {run["holds"] for run in collecting.seen}
    left = (h for h in combinations(judged.shown) if as_pairs(h) not in tried)
    for holds in islice(left, more):
        collecting.run(program, Plan(holds=holds, is_recording=False), is_quiet=True)
    return {
        "ending": judged.shown.ending.value,
        "message": judged.shown.message,
        "torch": judged.shown.torch_version,
        "findings": pairs_of(judged.shown),
        "runs": collecting.seen,
        "divergent": [as_pairs(one.holds) for one in judged.judged if one.holds],
        "polls": POLLS if QUERIES in judged.shown.not_seen else 0,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--more", type=int, default=0)
    parser.add_argument("out")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    sys.path.insert(0, str(LITMUS))
    programs = importlib.import_module("litmus.registry").load()
    out = Path(options.out)
    rows = json.loads(out.read_text()) if out.exists() else {}
    waiting: SimpleQueue[str] = SimpleQueue()
    for name in options.names or list(programs):
        if name not in rows or options.names:
            waiting.put(name)

    def work() -> None:
        with open_device() as device:
            while not waiting.empty():
                try:
                    name = waiting.get_nowait()
                except Empty:
                    return
                theme = programs[name].theme
                rows[name] = outcomes_of(device, theme, name, more=options.more)

    threads = [threading.Thread(target=work) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    write_json(out, {name: rows[name] for name in programs if name in rows})
    print(f"{len(rows)} of {len(programs)} programs")


if __name__ == "__main__":
    main()
