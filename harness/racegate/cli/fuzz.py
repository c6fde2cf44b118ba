"""The command fuzz."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Annotated, NoReturn

import typer
from rich.live import Live

from racegate.cli.help.named import FaultOption
from racegate.cli.options import (
    JsonOption,
    StrictOption,
    benign_of,
    say,
    stderr_console,
    stdout_console,
    tell,
)
from racegate.cli.sets import CampaignOptions, campaign_options, link_to, with_set
from racegate.faults.catalogue import find_fault
from racegate.history.exit_code import ExitCode
from racegate.history.outcome import SCHEMA
from racegate.jobs.campaign import Campaign, CampaignProgress
from racegate.jobs.fuzz import MakeScenarioWorker, make_worker
from racegate.jobs.fuzz import fuzz as run_fuzz
from racegate.jobs.generated import NOT_RUN, NOTHING_HAPPENED, CampaignSpec
from racegate.jobs.notices.webhook import CampaignNotices, Webhook
from racegate.jobs.stopping import StoppedError
from racegate.jobs.stores.records import CampaignState, code_of
from racegate.jobs.stores.witnesses import requests_in
from racegate.report.objects import FuzzObject, NewFinding
from racegate.report.search import print_campaign

app = typer.Typer(add_completion=False)


@app.command()
@with_set("options", campaign_options)
def fuzz(
    options: CampaignOptions,
    holds: Annotated[
        int, typer.Option(min=0, help="Further schedules of each scenario, with drawn holds.")
    ] = 0,
    fault: FaultOption = None,
    strict: StrictOption = None,
    json: JsonOption = None,
) -> None:
    """Search generated scenarios; minimise each new finding and write it as a witness."""
    if fault is not None:
        find_fault(fault)
    spec = CampaignSpec(seed=options.seed, fault=fault, holds_each=holds, benign=benign_of(strict))
    run_campaign(spec, options, make=make_worker, subject=fault, json=json)


def run_campaign(
    spec: CampaignSpec,
    options: CampaignOptions,
    *,
    make: MakeScenarioWorker,
    subject: str | None,
    json: str | None,
) -> NoReturn:
    """Goes on with a campaign, shows it and exits with what it came to.

    make: its workers; subject: what its findings are kept by in a store that it shares
    """
    out = options.out
    webhook = None if options.webhook is None else Webhook(options.webhook, say)
    campaign = Campaign(spec, out, link_to(options.store, subject, out))
    with webhook or nullcontext():
        notices = None if webhook is None else CampaignNotices(webhook, campaign)
        with Live("starting", console=stderr_console(), transient=True) as display:

            def on_progress(live: CampaignProgress) -> None:
                display.update(live_line(live))
                if notices is not None:
                    notices.look()

            state = run_fuzz(
                campaign,
                options.bounds,
                workers=options.workers,
                make=make,
                place=options.place,
                on_progress=on_progress,
            )
        if notices is not None:
            notices.end(state, exit_code_of(campaign, state))
    shown = campaign_object(campaign, state)
    tell(json, shown, lambda: print_campaign(stdout_console(), campaign, state))
    if campaign.stop is not None:
        done = f"{state.done} scenarios of the campaign in {out} are done, {len(campaign.new)} new"
        again = f"the same command: it begins with scenario {state.done}"
        raise StoppedError(campaign.stop, done=f"{done} findings are written there", go_on=again)
    raise typer.Exit(exit_code_of(campaign, state))


def exit_code_of(campaign: Campaign, state: CampaignState) -> int:
    """3 whatever was found, if the harness is not sound; 1 if a scenario of this or of an earlier
    run of the campaign showed something; 4 if it did not look at what it should.

    A drawn scenario in which nothing happens, or that the target does not run, is no reason; a
    campaign of nothing else is.
    """
    if not campaign.selfcheck.is_sound or campaign.breakages or campaign.set_aside:
        return ExitCode.BROKEN_HARNESS
    if campaign.new:
        return ExitCode.FINDING
    is_idle = not (state.target or state.exercised.get("overlapped_ops"))
    code = code_of(state, excused=(NOTHING_HAPPENED, NOT_RUN))
    is_open = code is ExitCode.CLEAN and (is_idle or campaign.unchecked)
    return ExitCode.INCONCLUSIVE if is_open else code


def live_line(live: CampaignProgress) -> str:
    """One line of progress."""
    rate = live.schedules_per_second
    last = "none yet" if live.last_new_s is None else f"{live.last_new_s:.0f} s ago"
    return (
        f"{live.seconds:.0f} s: {live.scenarios} scenarios, {rate:.0f} schedules/s, "
        f"{live.signatures} signatures, last new one {last}"
    )


def campaign_object(campaign: Campaign, state: CampaignState) -> FuzzObject:
    """What is known of a campaign after a run."""
    return FuzzObject(
        schema=SCHEMA,
        campaign=state,
        selfcheck=campaign.selfcheck,
        unchecked=tuple(sorted(campaign.unchecked)),
        breakages=(*campaign.breakages, *campaign.set_aside),
        losses=tuple(campaign.losses),
        store=None if campaign.shared is None else campaign.shared.name,
        unsent=0 if campaign.shared is None else campaign.shared.unsent,
        known=tuple(sorted(campaign.known)),
        new=tuple(
            NewFinding(
                signature=found.signature,
                scenario=found.index,
                shrink_runs=found.runs,
                is_minimal=found.is_minimal,
                holds=found.witness.holds,
                requests=requests_in(found.witness),
                is_seen=found.is_seen,
                looked=found.looked,
            )
            for found in sorted(campaign.new.values(), key=lambda found: found.index)
        ),
    )
