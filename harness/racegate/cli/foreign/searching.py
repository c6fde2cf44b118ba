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
from racegate.jobs.foreign.opened import Subject, TargetOptions
from racegate.jobs.foreign.worker import make_target_worker, smaller_of_any
from racegate.jobs.generated import CampaignSpec
from racegate.jobs.stores.choice import subject_of
from racegate.jobs.stores.witnesses import any_witness, requests_in
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.text import many
from racegate.targets.adapters.witness import AdapterSubject
from racegate.targets.common.witnesses.witness import ReleaseWitness
from racegate.targets.program.workflow.witness import ProgramSubject

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
    title = subject_words(subject)
    spec = CampaignSpec(seed=options.seed, benign=benign, target=f"{title}, scenarios of {draw}")
    make = partial(make_target_worker, subject, how, DRAWS[draw])
    run_campaign(spec, options, make=make, subject=subject_of(_name_of(title)), json=json)


def subject_words(subject: Subject) -> str:
    """What a target is called in a campaign, as a fleet calls it too."""
    match subject:
        case AdapterSubject(command=command):
            return f"adapter {' '.join(command)}"
        case ProgramSubject(argv=argv):
            return f"program {' '.join(argv)}"
    return subject.title


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
        int, typer.Option("--runs", min=1, help="Smaller ones tried at most.")
    ] = SCENARIOS_MAX,
    log: LogOption = None,
) -> None:
    """Leave out of a witness, whatever it is of, what its finding does not need: requests, events,
    tokens and steps of its scenario, and holds. Write what is left.
    """
    given = any_witness(witness)
    if path is not None and isinstance(given, ReleaseWitness):
        checkout = msgspec.structs.replace(given.subject, checkout=str(path))
        given = msgspec.structs.replace(given, subject=checkout)
    elif path is not None:
        fail("--path is of a witness of a release")
    options = TargetOptions(log=None if log is None else str(log))
    try:
        done = smaller_of_any(given, options, tries_max=runs)
    except BadInput as error:
        raise BadInputError(str(error)) from error
    file = folder / witness.name
    save(done.witness, file)
    say_written([file])
    whole = "" if done.is_minimal else " (there may be a smaller one: --runs)"
    left = f"{many(requests_in(done.witness), 'request')}, {many(len(done.witness.holds), 'hold')}"
    say(f"{left}, {done.runs} tried{whole}")


app = typer.Typer(add_completion=False)
app.command("minimise")(minimised_file)
