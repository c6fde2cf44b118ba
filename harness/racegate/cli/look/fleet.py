"""The command fleet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.live import Live

from racegate.cli.options import (
    AddressOption,
    BackendOption,
    JsonOption,
    StoreOption,
    TimeoutOption,
    WorkersOption,
    check_search,
    link_to,
    stderr_console,
    stdout_console,
    tell,
)
from racegate.device.cuda.torch import gpu_count
from racegate.interpose.errors import BadInput
from racegate.jobs.campaign import Campaign
from racegate.jobs.fleet.outcome import outcome_of
from racegate.jobs.fleet.run import FleetBounds, FleetRun, TargetCampaign
from racegate.jobs.fleet.sources import commit_of
from racegate.jobs.fleet.targets import (
    RevisionTarget,
    ScenarioDraw,
    SglangTarget,
    Target,
    TargetDevice,
    VllmTarget,
    load_fleet,
)
from racegate.jobs.fleet.worker import FleetSpec
from racegate.jobs.generated import CampaignSpec, drawn
from racegate.jobs.pools.choice import PoolBackend, WorkerPlace
from racegate.jobs.pools.time_limit import TIMEOUT_S
from racegate.jobs.stopping import StoppedError
from racegate.jobs.stores.choice import subject_of
from racegate.report.dashboard.targets import live_table, print_fleet
from racegate.scenario.spec import OwnScenario, configured
from racegate.targets.sglang.environment import environment_of as sglang_environment
from racegate.targets.vllm.environment import environment_of as vllm_environment
from racegate.targets.vllm.generate import scenario_of

app = typer.Typer(add_completion=False)
# Seeds of drawn requests are one line: each campaign has a stretch of it.
STRETCH = 1_000_000


@app.command()
def fleet(
    file: Annotated[Path, typer.Argument(metavar="FLEET", help="A TOML file that names targets.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="A folder for each target, in this.")],
    seconds: Annotated[
        float | None, typer.Option(min=0.0, help="Stop after so many seconds.")
    ] = None,
    scenarios: Annotated[
        int | None, typer.Option(min=1, help="Stop after so many scenarios of each target.")
    ] = None,
    workers: WorkersOption = 1,
    gpus: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default="as many as this machine has; on a cluster 0",
            help="Workers that have a GPU each.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the scenarios.")] = 0,
    backend: BackendOption = PoolBackend.LOCAL,
    address: AddressOption = None,
    store: StoreOption = None,
    timeout: TimeoutOption = TIMEOUT_S,
    json: JsonOption = None,
) -> None:
    """Search the same scenarios on several targets: revisions, releases, adapters, devices."""
    check_search(seconds, scenarios, backend, address)
    given = load_fleet(file)
    targets = [_resolved(target) for target in given.targets]
    spec = FleetSpec(
        seed=seed,
        targets=tuple(targets),
        draw=DRAWS[given.draw],
        missing=missing_of,
        timeout_s=timeout,
    )
    campaigns = [_campaign(target, given.draw, seed, out, store) for target in targets]
    given_gpus = _gpus_here(targets, backend, workers) if gpus is None else min(gpus, workers)
    place = WorkerPlace(backend=backend, address=address, gpus=given_gpus)
    with Live("starting", console=stderr_console(), transient=True) as display:
        run = FleetRun(
            spec,
            campaigns,
            FleetBounds(seconds=seconds, scenarios=scenarios),
            on_progress=lambda live: display.update(live_table(live)),
        )
        states = run.run(workers, place)
    shown = outcome_of(run, seed, states)
    tell(json, shown, lambda: print_fleet(stdout_console(), shown))
    if run.stop is not None:
        done = sum(state.done for state in states.values())
        raise StoppedError(run.stop, done=f"{done} scenarios in {out}", go_on="the same command")
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


def _campaign(
    target: Target, draw: ScenarioDraw, seed: int, out: Path, store: str | None
) -> TargetCampaign:
    subject = subject_of(target.name)
    folder = out / subject
    spec = CampaignSpec(seed=seed, target=f"{target.title}, scenarios of {draw}")
    return TargetCampaign(target, Campaign(spec, folder, link_to(store, subject, folder)))


def missing_of(target: Target) -> str:
    """What a release needs and is not set up here; empty if nothing is missing."""
    try:
        match target:
            case VllmTarget(vllm=release):
                vllm_environment(release)
            case SglangTarget(sglang=release):
                sglang_environment(release)
    except BadInput as error:
        return str(error)
    return ""


def drawn_requests(seed: int, index: int) -> OwnScenario:
    """As `racegate vllm search` draws it."""
    scenario = scenario_of(seed * STRETCH + index)
    return configured(msgspec.structs.replace(scenario, name=f"requests-{seed}-{index}"))


DRAWS = {ScenarioDraw.ENGINE: drawn, ScenarioDraw.REQUESTS: drawn_requests}
