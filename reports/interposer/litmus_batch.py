"""One process of `litmus_recorded_gpu.py`: runs many litmus programs on a real GPU, in turn.

    litmus_batch.py JOBS.json OUT.jsonl

It stands in the place of `racegate.interpose.child`, which makes a process for every run: to begin
CUDA takes a second each time. Between two runs all that the recorder knows is made anew.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch

from racegate.history.finding import Race
from racegate.history.schedule import Hold
from racegate.interpose.child import Child
from racegate.interpose.device.calls import LoggedRuntime
from racegate.interpose.device.session import Session
from racegate.interpose.device.spans import Place
from racegate.interpose.outcome import DEVICE, DeviceKind, Ending, Job, Outcome, Plan

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "interpose"))

from litmus_one import bind
from litmus_outcomes import pairs_of, values_of

HOLD_LIMIT_S = 3.0


def renew(child: Child, plan: Plan) -> None:
    """The state of a process that has just begun, but for CUDA and for the lines of no program."""
    session, installed = child.session, child.installed
    gc.collect()
    with session.own():
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch._C._host_emptyCache()
    session.drain()
    session.guards.open_all()
    spans, graphs, lock = session.spans, session.graphs, session.lock
    child._named.clear()
    log = LoggedRuntime(installed.library)
    Session.__init__(session, log, on_conflict=child._name, refuse_write=child._refuse_write)
    session.spans, session.graphs, session.lock = spans, graphs, lock  # no tracked lock
    for span in list(spans._spans.values()):
        is_pinned = span.place is Place.PINNED
        session.recorder.memory.add(span.base, span.end - span.base, is_watched=is_pinned)
    holds, limit_s = plan.holds, plan.hold_limit_s
    queue = installed.make_queue(holds, settles=plan.settles, limit_s=limit_s)
    session.begin(queue, polls_max=plan.polls, is_recording=plan.is_recording)
    child.run.observations.clear()


def run_once(child: Child, program: Any, plan: Plan) -> Outcome:
    """One run of one program."""
    renew(child, plan)
    ending, message = Ending.FINISHED, ""
    try:
        program.run()
    except Exception as error:  # noqa: BLE001  the program's own failure is its outcome
        ending, message = Ending.FAILED, f"{type(error).__name__}: {error}"
    session = child.session
    session.drain()
    observations = tuple(child.run.observations)
    findings: tuple[Race, ...] = tuple(child.findings())
    session.queue.force_all()
    child.installed.finish()
    return Outcome(
        ending=ending,
        message=message,
        events=session.recorder.events,
        findings=findings,
        observations=observations,
        not_seen=dict(session.not_seen),
        realised=session.queue.realised,
        torch_version=str(torch.__version__),
    )


def main() -> None:
    library = Path(os.environ.pop("LD_PRELOAD").partition(":")[0])
    jobs = json.loads(Path(sys.argv[1]).read_text())
    child = Child(library, kind=DeviceKind(os.environ.pop(DEVICE)))
    child.begin(Job(argv=(), plan=Plan(), result=os.devnull))
    gc.freeze()  # torch's own objects are many, and looked at before every run
    programs = importlib.import_module("litmus.registry").load()
    bind(importlib.import_module("litmus.registry"))
    with Path(sys.argv[2]).open("a") as out:
        for job in jobs:
            out.write(json.dumps({"begins": job["id"]}) + "\n")
            out.flush()
            start_s = time.perf_counter()
            plan = Plan(
                holds=tuple(Hold(op=a, until=b) for a, b in job["holds"]),
                polls=job["polls"],
                is_recording=job["kind"] == "recorded",
                settles=job["kind"] == "settled",
                hold_limit_s=HOLD_LIMIT_S,
            )
            outcome = run_once(child, programs[job["name"]], plan)
            answer = {
                "id": job["id"],
                "ending": outcome.ending.value,
                "message": outcome.message,
                "findings": pairs_of(outcome),
                "values": values_of(outcome),
                "not_seen": outcome.not_seen,
                "realised": outcome.realised,
                "seconds": round(time.perf_counter() - start_s, 3),
            }
            out.write(json.dumps(answer) + "\n")
            out.flush()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
