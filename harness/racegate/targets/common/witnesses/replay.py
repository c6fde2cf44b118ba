"""A release's witness again: its landing in an engine that is started."""

from __future__ import annotations

import hashlib

import msgspec

from racegate.history.replayed import Replay, ReplayRun, replayed, shown_by
from racegate.interpose.outcome import DeviceKind
from racegate.targets.common.cell import EngineCell, Runs
from racegate.targets.common.judge import ReleaseVerdict, judge, judge_under
from racegate.targets.common.result import result_of
from racegate.targets.common.sensitivity import Sensitivity
from racegate.targets.common.witnesses.witness import ReleaseWitness, is_as_recorded, outcome_of


def replay_release(
    engine: Runs,
    witness: ReleaseWitness,
    cell: EngineCell,
    *,
    command: str,
    times: int,
    sensitivity: Sensitivity | None = None,
    kind: DeviceKind = DeviceKind.VIRTUAL,
) -> Replay:
    """A witness of vLLM or SGLang run again. Its signature is the recorded one where the same is
    wrong.

    cell: the engine, which may be another than that of the witness
    times: how often the run without holds and the one under them are made
    command: what shows it again; sensitivity: of this engine, for its verdict; kind: of its device
    """
    runs: list[ReplayRun] = []
    for _ in range(times):
        judged = judged_again(engine, witness, cell, sensitivity=sensitivity, kind=kind)
        is_same = is_as_recorded(judged, witness)
        runs.append(
            ReplayRun(
                outcome=outcome_of(judged, witness),
                signature=witness.signature if is_same else None,
                seen=hashlib.sha256(msgspec.json.encode(judged.shown.seen)).hexdigest(),
                matches_record=is_same,
                message=judged.message,
            )
        )
    last = shown_by(result_of(judged, witness.scenario.name), command)
    subject = str(cell.__struct_config__.tag)
    return replayed(Replay, witness, subject, runs, last=last)


def judged_again(
    engine: Runs,
    witness: ReleaseWitness,
    cell: EngineCell,
    *,
    sensitivity: Sensitivity | None = None,
    kind: DeviceKind = DeviceKind.VIRTUAL,
) -> ReleaseVerdict:
    """The scenario under the holds of the witness, or, if it has none, as it is. See
    `replay_release`.
    """
    scenario = witness.scenario
    if not witness.holds:
        return judge(engine, scenario, cell, sensitivity=sensitivity, runs_max=0)
    return judge_under(engine, scenario, cell, witness.landing, sensitivity=sensitivity, kind=kind)
