"""The command fleet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.live import Live

from racegate.cli.options import JsonOption, fail, stderr_console, stdout_console, tell
from racegate.cli.sets import CampaignOptions, campaign_options, link_to, with_set
from racegate.device.cuda.torch import gpu_count
from racegate.jobs.campaign import Campaign
from racegate.jobs.fleet.outcome import outcome_of
from racegate.jobs.fleet.run import FleetRun, TargetCampaign
from racegate.jobs.fleet.sources import commit_of
from racegate.jobs.fleet.targets import RevisionTarget, Target, TargetDevice, load_fleet
from racegate.jobs.fleet.worker import FleetSpec
from racegate.jobs.foreign.draws import DRAWS, ScenarioDraw
from racegate.jobs.generated import CampaignSpec
from racegate.jobs.pools.choice import PoolBackend
from racegate.jobs.stopping import StoppedError
from racegate.jobs.stores.choice import subject_of
from racegate.report.dashboard.targets import live_table, print_fleet

app = typer.Typer(add_completion=False)


@app.command()
@with_set("options", campaign_options)
def fleet(
    file: Annotated[Path, typer.Argument(metavar="FLEET", help="A TOML file that names targets.")],
    options: CampaignOptions,
    gpus: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default="as many as this machine has; on a cluster 0",
            help="Workers that have a GPU each.",
        ),
    ] = None,
    json: JsonOption = None,
) -> None:
    """Search the same scenarios on several targets: revisions, releases, adapters, devices."""
    if options.webhook is not None:
        fail("--webhook is of a campaign on one target: fuzz, or search of vllm, sglang and others")
    given = load_fleet(file)
    targets = [_resolved(target) for target in given.targets]
    seed, workers = options.seed, options.workers
    spec = FleetSpec(
        seed=seed,
        targets=tuple(targets),
        draw=DRAWS[given.draw],
        timeout_s=options.timeout_s,
    )
    campaigns = [_campaign(target, given.draw, options) for target in targets]
    if gpus is None:
        gpus = _gpus_here(targets, options.place.backend, workers)
    with Live("starting", console=stderr_console(), transient=True) as display:
        run = FleetRun(
            spec,
            campaigns,
            options.bounds,
            on_progress=lambda live: display.update(live_table(live)),
        )
        states = run.run(workers, replace(options.place, gpus=min(gpus, workers)))
    shown = outcome_of(run, seed, states)
    tell(json, shown, lambda: print_fleet(stdout_console(), shown))
    if run.stop is not None:
        done = sum(state.done for state in states.values())
        raise StoppedError(
            run.stop, done=f"{done} scenarios in {options.out}", go_on="the same command"
        )
    raise typer.Exit(shown.exit_code)


def _resolved(target: Target) -> Target:
    """A revision by its commit: a branch means another one tomorrow. Raises RevisionError."""
    if not isinstance(target, RevisionTarget):
        return target
    commit = commit_of(Path(target.checkout), target.revision)
    return msgspec.structs.replace(target, revision=commit)


def _gpus_here(targets: Sequence[Target], backend: PoolBackend, workers: int) -> int:
    """How many workers can have one of their own. Asked only if a target needs one."""
    is_asked = any(getattr(each, "device", None) is TargetDevice.GPU for each in targets)
    return min(gpu_count(), workers) if is_asked and backend is PoolBackend.LOCAL else 0


def _campaign(target: Target, draw: ScenarioDraw, options: CampaignOptions) -> TargetCampaign:
    subject = subject_of(target.name)
    folder = options.out / subject
    spec = CampaignSpec(seed=options.seed, target=f"{target.title}, scenarios of {draw}")
    return TargetCampaign(target, Campaign(spec, folder, link_to(options.store, subject, folder)))
