"""Judges all litmus programs on the virtual device, one process each, and searches the racy ones.

    python reports/interposer/litmus_virtual.py [--no-search] OUT.json [NAME ...]

Prints every program whose verdict is not the expected one, and a summary; exit 1 if there is any.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

from racegate.interpose.outcome import Ending
from racegate.scenario.untrusted.files import write_json
from racegate.targets.common.search import VERDICTS
from racegate.targets.program.judge import judge_on
from racegate.targets.program.launch import DeviceServer, Program, open_device

LITMUS = Path(__file__).parents[2] / "tests" / "interpose"
RUNS_MAX = 24


def judge_one(device: DeviceServer, theme: str, name: str, *, searches: bool) -> dict[str, object]:
    """What one program showed."""
    start_s = time.perf_counter()
    program = Program((str(LITMUS / "litmus_one.py"), theme, name), timeout_s=120)
    verdicts = judge_on(device, program, explores=searches, runs_max=RUNS_MAX, is_quiet=True)
    outcome = verdicts.shown
    search = verdicts.search
    return {
        "ending": outcome.ending.value,
        "message": outcome.message if outcome.ending is not Ending.FINISHED else "",
        "findings": [f"{f.first.label} / {f.second.label}: {f.edge}" for f in outcome.findings],
        "verdicts": [VERDICTS[one.effect].value for one in verdicts.judged],
        "runs": search.runs if search else 0,
        "not_seen": outcome.not_seen,
        "seconds": round(time.perf_counter() - start_s, 2),
    }


def main() -> int:
    sys.path.insert(0, str(LITMUS))
    programs = importlib.import_module("litmus.registry").load()
    searches = "--no-search" not in sys.argv
    out, *names = [argument for argument in sys.argv[1:] if argument != "--no-search"]
    names = names or list(programs)
    rows = []
    with open_device() as device:
        for name in names:
            program = programs[name]
            row = judge_one(device, program.theme, name, searches=searches)
            is_racy = program.expected.value == "racy"
            row |= {"name": name, "pair": program.pair, "expected": program.expected.value}
            row["right"] = bool(row["findings"]) == is_racy and row["ending"] == "finished"
            row["observable"] = program.observable
            row["shown"] = "DIVERGENT" in row["verdicts"]
            rows.append(row)
            if not row["right"] or (searches and program.observable != row["shown"]):
                print(name, row["expected"], program.observable, row, flush=True)
            write_json(Path(out), rows)
    wrong = [row for row in rows if not row["right"]]
    shown = sum(bool(row["shown"]) for row in rows)
    observable = sum(bool(row["observable"]) for row in rows)
    searched = f", {shown} of {observable} observable shown" if searches else ""
    print(f"{len(rows) - len(wrong)} of {len(rows)} right{searched}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
