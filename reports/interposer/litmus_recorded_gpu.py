"""Runs the litmus programs on a real GPU, and compares with the virtual device's outcomes.

    python reports/interposer/litmus_recorded_gpu.py [--jobs N] OUTCOMES.json OUT.json [NAME ...]

OUTCOMES.json is of `litmus_outcomes.py`. Per program: the verdict of one recorded run on real
streams; what it observed there, in three runs without recording, and in one where each operation is
waited for; and, for the holds that the virtual device's search tried, what it observed with latches
in their place. Prints what is not as expected, and a summary; exit 1 if there is any.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from racegate.interpose.build import find_toolkit
from racegate.interpose.outcome import DeviceKind
from racegate.scenario.untrusted.files import write_json
from racegate.targets.common.variables import environment_for

HERE = Path(__file__).parent
LITMUS = HERE.parents[1] / "tests" / "interpose"
HOLDS_MAX = 6  # per program, those that showed a divergence first
FREE_RUNS = 3
STALL_S = 40
Job = dict[str, Any]


def jobs_of(name: str, known: dict[str, Any]) -> list[Job]:
    """The runs of one program: recorded, free, settled, and one per hold."""
    polls = known["polls"]
    jobs: list[Job] = [{"kind": "recorded", "holds": [], "polls": polls}]
    jobs += [{"kind": "free", "holds": [], "polls": polls} for _ in range(FREE_RUNS)]
    jobs.append({"kind": "settled", "holds": [], "polls": polls})
    tried = [run["holds"] for run in known["runs"] if run["holds"]]
    first = [hold for hold in known["divergent"] if hold in tried]
    holds = first + [hold for hold in tried if hold not in first]
    unique = {json.dumps(hold): hold for hold in holds}
    jobs += [
        {"kind": "held", "holds": hold, "polls": polls}
        for hold in list(unique.values())[:HOLDS_MAX]
    ]
    return [{"name": name, "id": f"{name} {at}", **job} for at, job in enumerate(jobs)]


def run_jobs(jobs: list[Job], answers: dict[str, Any], environment: dict[str, str]) -> None:
    """In processes, each begun where the one before was lost."""
    while jobs:
        with tempfile.TemporaryDirectory() as folder:
            order, out = Path(folder) / "jobs.json", Path(folder) / "out.jsonl"
            order.write_text(json.dumps(jobs))
            out.touch()
            command = [sys.executable, str(HERE / "litmus_batch.py"), str(order), str(out)]
            with (Path(folder) / "errors").open("w+") as errors:
                process = subprocess.Popen(
                    command, env=environment, stdout=subprocess.DEVNULL, stderr=errors
                )
                _watch(process, out)
                errors.seek(0)
                text = errors.read()
            begun = ""
            for line in out.read_text().splitlines():
                answer = json.loads(line)
                begun = answer.get("begins", begun)
                if "id" in answer:
                    answers[answer["id"]] = answer
        left = [job for job in jobs if job["id"] not in answers]
        if left and begun not in answers:  # it was lost in this one, or before the first
            lost = begun or left[0]["id"]
            answers[lost] = {"ending": "lost", "message": text[-600:], "values": [], "findings": [],
                             "not_seen": {}, "realised": {}, "seconds": 0.0}  # fmt: skip
            left = [job for job in left if job["id"] != lost]
        jobs = left


def _watch(process: subprocess.Popen[bytes], out: Path) -> None:
    """Ends the process if nothing was written for too long."""
    size, since_s = -1, time.monotonic()
    while True:
        try:
            process.wait(0.5)
        except subprocess.TimeoutExpired:
            pass
        else:
            return
        now = out.stat().st_size
        if now != size:
            size, since_s = now, time.monotonic()
        elif time.monotonic() - since_s > STALL_S:
            process.kill()
            process.wait()
            return


def row_of(program: Any, known: dict[str, Any], jobs: list[Job], answers: dict[str, Any]) -> Job:
    """What the runs of one program say together."""
    outcomes = [run["values"] for run in known["runs"]]
    runs = [{**job, **answers.get(job["id"], {"ending": "left out"})} for job in jobs]
    runs = [run for run in runs if run["ending"] != "left out"]
    recorded = next((run for run in runs if run["kind"] == "recorded"), None)
    if recorded is None:
        return {}
    settled = next((run["values"] for run in runs if run["kind"] == "settled"), [])
    verdict = "racy" if recorded["findings"] else "silent"
    held = []
    for run in (run for run in runs if run["kind"] == "held"):
        expected = next(r["values"] for r in known["runs"] if r["holds"] == run["holds"])
        held.append({
            "hold": " and ".join(f"{operation} until {until}" for operation, until in run["holds"]),
            "kept": bool(run["realised"]) and all(run["realised"].values()),
            "as_virtual": run["values"] == expected,
            "near_virtual": are_near(run["values"], expected),
            "changed": run["values"] != settled,
            "values": run["values"],
            "virtual": expected,
            "not_seen": run["not_seen"],
            "ending": run["ending"],
        })  # fmt: skip
    return {
        "name": program.name,
        "pair": program.pair,
        "expected": program.expected.value,
        "observable": program.observable,
        "verdict": verdict if recorded["ending"] == "finished" else recorded["ending"],
        "message": recorded["message"],
        "findings": recorded["findings"],
        "virtual_findings": known["findings"],
        "not_seen": recorded["not_seen"],
        "outcomes": [v for at, v in enumerate(outcomes) if v not in outcomes[:at]],
        "observed": [run["values"] for run in runs if run["kind"] in ("recorded", "free")],
        "settled": settled,
        "held": held,
        "strays": [
            f"{run['kind']}: {run['values']}"
            for run in runs
            if outcomes and not any(are_near(run["values"], outcome) for outcome in outcomes)
        ],
        "inexact": [run["kind"] for run in runs if run["values"] not in outcomes],
        "lost": [f"{run['id']}: {run['message']}" for run in runs if run["ending"] == "lost"],
    }


def are_near(one: Any, other: Any) -> bool:
    """Whether two lists of observations are equal up to rounding: a GPU sums in another order."""
    if len(one) != len(other) or [name for name, _ in one] != [name for name, _ in other]:
        return False
    return all(a == b or _near(a, b) for (_, a), (_, b) in zip(one, other, strict=True))


def _near(one: str, other: str) -> bool:
    try:
        first, second = json.loads(one), json.loads(other)
    except json.JSONDecodeError:
        return False
    firsts, seconds = _numbers(first), _numbers(second)
    return len(firsts) == len(seconds) and all(
        math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-6) for a, b in zip(firsts, seconds, strict=True)
    )


def _numbers(value: Any) -> list[float]:
    return [n for item in value for n in _numbers(item)] if isinstance(value, list) else [value]


def complaints(row: Job) -> str:
    """What is not as expected, on one line; empty if nothing."""
    wrong = []
    if row["verdict"] != row["expected"]:
        wrong.append(f"verdict {row['verdict']} {row['message'][-300:]} {row['findings']}")
    elif row["outcomes"] and row["findings"] != row["virtual_findings"]:
        wrong.append(f"findings {row['findings']}, virtual {row['virtual_findings']}")
    if row["strays"]:
        wrong.append(f"strays {row['strays']} of {row['outcomes']}")
    if row["lost"]:
        wrong.append(f"lost {row['lost']}")
    wrong += [
        f"held {held}" for held in row["held"] if not held["kept"] or not held["near_virtual"]
    ]
    if row["observable"] and not any(held["changed"] for held in row["held"]):
        wrong.append("no latch changed a value")
    return "; ".join(wrong)


def summary(rows: list[Job]) -> dict[str, int]:
    """Counts."""
    held = [held for row in rows for held in row["held"]]
    observable = [row for row in rows if row["observable"]]
    return {
        "programs": len(rows),
        "right verdicts": sum(row["verdict"] == row["expected"] for row in rows),
        "same findings as on the virtual device": sum(
            row["findings"] == row["virtual_findings"] for row in rows
        ),
        "observable": len(observable),
        "observable, a latch changed a value": sum(
            any(h["changed"] for h in row["held"]) for row in observable
        ),
        "runs with latches": len(held),
        "of them, every hold kept its operation back": sum(h["kept"] for h in held),
        "of them, observed what the virtual device did": sum(h["near_virtual"] for h in held),
        "of them, bit by bit": sum(h["as_virtual"] for h in held),
        "programs with an outcome outside the virtual device's": sum(
            bool(row["strays"]) for row in rows
        ),
        "programs with an outcome equal only up to rounding": sum(
            bool(row["inexact"]) and not row["strays"] for row in rows
        ),
    }


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--limit", type=float, default=480, help="seconds; the rest is left out")
    parser.add_argument("outcomes")
    parser.add_argument("out")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    sys.path.insert(0, str(LITMUS))
    programs = importlib.import_module("litmus.registry").load()
    known = json.loads(Path(options.outcomes).read_text())
    names = [name for name in options.names or list(programs) if name in known]
    jobs = {name: jobs_of(name, known[name]) for name in names}
    environment = environment_for(find_toolkit(), DeviceKind.CUDA)
    answers: dict[str, Any] = {}
    start_s = time.perf_counter()
    threads = []
    for at in range(options.jobs):
        part = [job for name in names[at :: options.jobs] for job in jobs[name]]
        thread = threading.Thread(target=run_jobs, args=(part, answers, environment), daemon=True)
        threads.append(thread)
        thread.start()
    for thread in threads:
        thread.join(max(0.0, options.limit - (time.perf_counter() - start_s)))
    rows = [row_of(programs[name], known[name], jobs[name], answers) for name in names]
    rows = [row for row in rows if row]
    wrong = [row for row in rows if complaints(row)]
    for row in wrong:
        print(row["name"], complaints(row)[:900], flush=True)
    counts = summary(rows)
    result = {"machine": machine(), "summary": counts, "programs": rows}
    write_json(Path(options.out), result)
    seconds = time.perf_counter() - start_s
    print(f"{json.dumps(counts, indent=1)}\n{len(names) - len(rows)} left out, {seconds:.0f} s")
    return bool(wrong)


def machine() -> dict[str, str]:
    """Which GPU, and which torch."""
    torch = importlib.import_module("torch")
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return {"device": name, "torch": str(torch.__version__)}


if __name__ == "__main__":
    sys.exit(main())
