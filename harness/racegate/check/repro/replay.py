"""Replay: runs a witness of our own engine again and says whether it shows what it was recorded
for.
"""

from __future__ import annotations

from collections.abc import Callable

from racegate.check.checker import Checkers
from racegate.check.findings import digest_of
from racegate.device.cuda.site import CudaSite
from racegate.faults.catalogue import find_fault
from racegate.history.finding import signature_of
from racegate.history.outcome import RunResult
from racegate.history.replayed import Replay, ReplayRun, outcome_of_run, replayed, shown_by
from racegate.history.schedule import parse_schedule
from racegate.history.witness import Witness


def replay(
    witness: Witness,
    *,
    times: int,
    command: str,
    cuda: CudaSite | None = None,
    checkers: Checkers | None = None,
    on_landing: Callable[[str], None] | None = None,
) -> Replay:
    """Replays a witness. The worst outcome of all replays is the outcome. cuda: on this GPU

    checkers: of whoever replays many witnesses; on_landing: see HoldChooser
    """
    fault = None if witness.fault is None else find_fault(witness.fault)
    schedule = parse_schedule(witness.holds)
    checkers = Checkers() if checkers is None else checkers
    checker = checkers.of(witness.scenario, replay=command, cuda=cuda)
    runs: list[ReplayRun] = []
    last: RunResult | None = None
    for _ in range(times):
        run = checker.execute(schedule=schedule, fault=fault, on_landing=on_landing)
        last = shown_by(checker.judge(run, schedule=schedule, fault=fault), command)
        digest = digest_of(run, last.findings)
        runs.append(
            ReplayRun(
                outcome=outcome_of_run(last, witness.signature),
                signature=signature_of(last.findings),
                seen=digest,
                matches_record=digest == witness.digest,
            )
        )
    assert last is not None, "at least one replay"
    fault_name, resolved = witness.fault, last.resolved
    return replayed(Replay, witness, "engine", runs, fault=fault_name, resolved=resolved, last=last)
