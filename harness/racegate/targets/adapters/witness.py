"""Witnesses of engines behind an adapter: what was run, and the finding that it has to show."""

from __future__ import annotations

from collections.abc import Sequence

from racegate.history.finding import Verdict, signature_of
from racegate.history.outcome import RunResult
from racegate.history.replayed import Replay, ReplayRun, outcome_of_run, replayed, shown_by
from racegate.history.schedule import parse_schedule
from racegate.history.witness import (
    SealedWitness,
    WitnessReader,
    recorded_finding,
    sealed,
    versions,
)
from racegate.scenario.spec import OwnScenario
from racegate.scenario.strict import StrictStruct
from racegate.scenario.validation import validate
from racegate.targets.adapters.client import Adapter
from racegate.targets.adapters.judge import AdapterJudge
from racegate.targets.adapters.wire import HelloAnswer, parse_plant

SHOWN = (Verdict.DIVERGENT, Verdict.DEADLOCK)


class AdapterSubject(StrictStruct, frozen=True, kw_only=True, tag="adapter", tag_field="of"):
    """An engine behind an adapter. command: what starts the adapter, as from the folder in which it
    was started; folder: which one, empty for that of whoever replays it
    device: one that the engine offers; plant: what was planted in it, if anything
    """

    command: tuple[str, ...]
    device: str
    plant: str | None = None
    folder: str = ""


class AdapterWitness(SealedWitness, frozen=True, kw_only=True):
    """What is needed to see a finding of an adapter's engine again. subject: the engine"""

    subject: AdapterSubject
    scenario: OwnScenario


def witness_of(
    result: RunResult,
    scenario: OwnScenario,
    hello: HelloAnswer,
    command: Sequence[str],
    *,
    folder: str = "",
) -> AdapterWitness | None:
    """The witness of what a run showed; None if that was nothing. hello: how the engine introduces
    itself; command: what starts its adapter; folder: where, if not here
    """
    signature = signature_of(result.findings)
    if signature is None:
        return None
    return sealed(
        AdapterWitness(
            title=scenario.title or scenario.name,
            subject=AdapterSubject(
                command=tuple(command), device=result.device, plant=result.fault, folder=folder
            ),
            scenario=scenario,
            holds=result.schedule,
            signature=signature,
            finding=recorded_finding(result.findings),
            verdict=result.verdict,
            versions={**versions(), hello.engine: hello.version},
        )
    )


def check_adapter(witness: AdapterWitness) -> None:
    """Whether an engine could run it. Raises ScenarioError or ScheduleError."""
    validate(witness.scenario)
    parse_schedule(witness.holds)


ADAPTER_WITNESSES = WitnessReader(
    of="adapter", title="an engine behind an adapter", kind=AdapterWitness, check=check_adapter
)


def replay_adapter(
    adapter: Adapter, witness: AdapterWitness, *, times: int, command: str
) -> Replay:
    """times: how often the eager run and the one under the holds are made. Raises AdapterError.

    command: what shows it again
    """
    subject = witness.subject
    plant = None if subject.plant is None else parse_plant(subject.plant)
    judge = AdapterJudge(adapter, witness.scenario, device=subject.device)
    runs: list[ReplayRun] = []
    for _ in range(times):
        judged = judge.under(parse_schedule(witness.holds), plant=plant)
        signature = signature_of(judged.findings)
        runs.append(
            ReplayRun(
                outcome=outcome_of_run(judged, witness.signature),
                signature=signature,
                seen=tuple(finding.message for finding in judged.findings),
                matches_record=signature == witness.signature,
            )
        )
    return replayed(Replay, witness, "adapter", runs, last=shown_by(judged, command))
