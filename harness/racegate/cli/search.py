"""The commands replay, explain and fuzz."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.live import Live as LiveDisplay

from racegate.check.checker import Checker
from racegate.cli.options import (
    DeviceKind,
    DeviceOption,
    FaultOption,
    JsonOption,
    PacingOption,
    WorkersOption,
    fail,
    progress_bar,
    site_of,
    stdout_console,
    write_json,
)
from racegate.device.cuda.pacing import Pacing
from racegate.faults.catalogue import find_fault
from racegate.history.finding import Verdict
from racegate.history.outcome import SCHEMA
from racegate.history.schedule import parse_schedule
from racegate.history.witness import load_witness
from racegate.jobs.environment import environment_of
from racegate.jobs.fuzz import NOTHING_HAPPENED, Campaign, CampaignState, Live, Plan
from racegate.report.search import print_campaign, print_explanation, print_replay, print_replays
from racegate.repro.explain import explain_failure, explain_pair
from racegate.repro.replay import EXIT_CODES, Replay, worst_of
from racegate.repro.replay import replay as replay_witness
from racegate.scenario.files import load

WITNESS_SUFFIX = ".witness.json"


def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Witnesses.")],
    times: Annotated[int, typer.Option(min=1, help="How often each.")] = 1,
    device: DeviceOption = DeviceKind.VIRTUAL,
    pacing: PacingOption = Pacing.EAGER,
    json: JsonOption = None,
) -> None:
    """Run witnesses again: 1 reproduced, 4 not realised, 5 another signature, 6 nothing found; of
    several the worst outcome.
    """
    witnesses = [load_witness(file) for file in files]
    site = site_of(device, pacing)
    options = "" if site is None else f" --device {device} --pacing {pacing}"
    results = []
    with progress_bar() as progress:
        task = progress.add_task("replaying", total=len(files))
        for file, witness in zip(files, witnesses, strict=True):
            progress.update(task, description=file.name)
            command = f"racegate replay {file}{options}"
            results.append(replay_witness(witness, times=times, command=command, cuda=site))
            progress.advance(task)
    if json is not None:
        write_json(json, _replay_object(files, results, device))
    if json != "-" and len(files) == 1:
        print_replay(stdout_console(), results[0])
    elif json != "-":
        print_replays(stdout_console(), files, results)
    raise typer.Exit(EXIT_CODES[worst_of(result.outcome for result in results)])


def _replay_object(files: list[Path], results: list[Replay], device: DeviceKind) -> Any:
    """One replay whole; several without their last runs."""
    if len(files) == 1:
        return msgspec.to_builtins(results[0])
    objects = []
    for file, result in zip(files, results, strict=True):
        fields = msgspec.to_builtins(result)
        del fields["last"]
        objects.append({"file": file.name, **fields})
    return {"schema": SCHEMA, "environment": environment_of(device), "replays": objects}


def explain(
    target: Annotated[Path, typer.Argument(metavar="FILE", help="A witness or a scenario.")],
    pair: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="OP OP", help="Two operations or host actions of a scenario."),
    ] = None,
    fault: FaultOption = None,
    json: JsonOption = None,
) -> None:
    """Explain a witness; or say by which edges two operations of a scenario are ordered, or not."""
    if target.name.endswith(WITNESS_SUFFIX):
        witness = load_witness(target)
        scenario, schedule = witness.scenario, parse_schedule(list(witness.holds))
        fault = witness.fault
    else:
        scenario, schedule = load(target), parse_schedule([])
    found = None if fault is None else find_fault(fault)
    checker = Checker(scenario, replay=f"racegate run {target}")
    explanation: Any
    if pair is not None:
        trace = checker.execute(schedule=schedule, fault=found).trace
        explanation = explain_pair(trace, *pair)
    elif target.name.endswith(WITNESS_SUFFIX):
        explanation = explain_failure(checker, schedule, found)
    else:
        fail("say which operations of the scenario: --pair OP OP")
    if json is not None:
        write_json(json, {"schema": SCHEMA, **msgspec.to_builtins(explanation)})
    if json != "-":
        print_explanation(stdout_console(), explanation)


def fuzz(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Witnesses and progress are kept here.")],
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after so many seconds.")
    ] = None,
    scenarios: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many scenarios in all.")
    ] = None,
    workers: WorkersOption = 1,
    seed: Annotated[int, typer.Option(min=0, help="The campaign's seed.")] = 0,
    holds: Annotated[
        int, typer.Option(min=0, help="Further schedules of each scenario, with drawn holds.")
    ] = 0,
    fault: FaultOption = None,
    json: JsonOption = None,
) -> None:
    """Search generated scenarios; minimise each new finding and write it as a witness."""
    if seconds is None and scenarios is None:
        fail("give --seconds or --scenarios, or both")
    if fault is not None:
        find_fault(fault)
    plan = Plan(
        seed=seed,
        workers=workers,
        fault=fault,
        seconds=seconds,
        scenarios=scenarios,
        holds_each=holds,
    )
    campaign = Campaign(plan, out)
    with LiveDisplay("starting", console=Console(stderr=True), transient=True) as display:
        state = campaign.run(lambda live: display.update(live_line(live)))
    if json is not None:
        write_json(json, campaign_object(campaign, state))
    if json != "-":
        print_campaign(stdout_console(), campaign, state)
    raise typer.Exit(exit_code_of(campaign, state))


def exit_code_of(campaign: Campaign, state: CampaignState) -> int:
    """3 whatever was found, if the harness is not sound; 4 if it did not look at what it should.

    A drawn scenario in which nothing happens is no reason; a campaign of nothing else is.
    """
    if not campaign.selfcheck.is_sound:
        return 3
    if campaign.new:
        return 1
    is_idle = not state.exercised.get("overlapped_ops")
    inconclusive = state.verdicts.get(Verdict.INCONCLUSIVE, 0)
    is_open = inconclusive > state.scenarios_with.get(NOTHING_HAPPENED, 0)
    return 4 if is_idle or is_open or campaign.unchecked else 0


def live_line(live: Live) -> str:
    """One line of progress."""
    rate = live.schedules_per_second
    last = "none yet" if live.last_new_s is None else f"{live.last_new_s:.0f} s ago"
    return (
        f"{live.seconds:.0f} s: {live.scenarios} scenarios, {rate:.0f} schedules/s, "
        f"{live.signatures} signatures, last new one {last}"
    )


def campaign_object(campaign: Campaign, state: CampaignState) -> dict[str, Any]:
    """The `fuzz` object of the JSON contract."""
    return {
        "schema": SCHEMA,
        "campaign": msgspec.to_builtins(state),
        "selfcheck": msgspec.to_builtins(campaign.selfcheck),
        "unchecked": sorted(campaign.unchecked),
        "known": sorted(campaign.known),
        "new": [
            {
                "signature": found.signature,
                "scenario": found.index,
                "shrink_runs": found.runs,
                "is_minimal": found.is_minimal,
                "holds": list(found.witness.holds),
                "requests": len(found.witness.scenario.requests),
            }
            for found in sorted(campaign.new.values(), key=lambda found: found.index)
        ],
    }
