"""Campaigns on targets that are not ours, and their witnesses made smaller."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import msgspec
import typer

from racegate.cli.fuzz import run_campaign
from racegate.cli.options import (
    LogOption,
    PathOption,
    fail,
    folder_to_fill,
    say,
    say_written,
)
from racegate.cli.sets import CampaignOptions
from racegate.history.finding import Benign
from racegate.history.witness import save
from racegate.interpose.errors import BadInput
from racegate.jobs.foreign.draws import DRAWS, ScenarioDraw
from racegate.jobs.foreign.opened import Subject, TargetOptions, open_target
from racegate.jobs.foreign.worker import make_target_worker, smaller
from racegate.jobs.generated import CampaignSpec
from racegate.jobs.stores.choice import subject_of
from racegate.jobs.stores.witnesses import any_witness, requests_in
from racegate.scenario.errors import BadInputError
from racegate.targets.adapters.witness import AdapterSubject, AdapterWitness
from racegate.targets.common.cell import EngineCell
from racegate.targets.common.witnesses.witness import ReleaseWitness
from racegate.targets.sglang.cell import SchedulerCell
from racegate.targets.vllm.cell import Cell

SCENARIOS_MAX = 300


def search_target(
    subject: Subject,
    how: TargetOptions,
    options: CampaignOptions,
    *,
    benign: Benign,
    json: str | None,
    draw: ScenarioDraw = ScenarioDraw.REQUESTS,
) -> NoReturn:
    """A campaign on a target, as `racegate fuzz` on our own engine. draw: what scenarios"""
    title = subject.title if isinstance(subject, EngineCell) else subject_words(subject)
    spec = CampaignSpec(seed=options.seed, benign=benign, target=f"{title}, scenarios of {draw}")
    make = partial(make_target_worker, subject, how, DRAWS[draw])
    run_campaign(spec, options, make=make, subject=subject_of(_name_of(title)), json=json)


def subject_words(subject: AdapterSubject) -> str:
    """An adapter's engine, as a fleet calls it too."""
    return f"adapter {' '.join(subject.command)}"


def _name_of(title: str) -> str:
    """What the campaigns on a target are kept by in a store."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", title).strip("-._")[:64]


def minimised_file(
    witness: Annotated[Path, typer.Argument(metavar="WITNESS", help="A file of run --witness.")],
    folder: Annotated[
        Path,
        typer.Option(
            "--witness",
            metavar="DIR",
            help="Where the smaller witness goes.",
            callback=folder_to_fill,
        ),
    ],
    path: PathOption = None,
    runs: Annotated[
        int, typer.Option("--runs", min=1, help="Scenarios tried at most.")
    ] = SCENARIOS_MAX,
    log: LogOption = None,
) -> None:
    """Leave out of a witness's scenario what its harm does not need, and write what is left."""
    given = any_witness(witness)
    if not isinstance(given, ReleaseWitness | AdapterWitness):
        fail(f"{witness}: a witness of a release or of an adapter is made smaller here")
    subject = given.subject
    if path is not None and isinstance(subject, EngineCell):
        subject = msgspec.structs.replace(subject, checkout=str(path))
    assert isinstance(subject, Cell | SchedulerCell | AdapterSubject)
    try:
        with open_target(subject, TargetOptions(log=None if log is None else str(log))) as target:
            done = smaller(target, given, tries_max=runs)
    except BadInput as error:
        raise BadInputError(str(error)) from error
    file = folder / witness.name
    save(done.witness, file)
    say_written([file])
    whole = "" if done.is_minimal else " (there may be a smaller one: --runs)"
    say(f"{requests_in(done.witness)} requests, {done.runs} scenarios tried{whole}")
