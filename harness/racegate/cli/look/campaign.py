"""Commands over what campaigns have found: how often each is met, and whether it is fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from racegate.cli.help.named import FaultOption
from racegate.cli.look.serve import serve
from racegate.cli.look.triage import app as triage_app
from racegate.cli.look.triage import causes_of
from racegate.cli.options import (
    JsonOption,
    TargetOption,
    WorkersOption,
    WrittenStoreOption,
    counted,
    fail,
    folder_to_fill,
    stdout_console,
    tell,
)
from racegate.cli.sets import subject_given
from racegate.history.outcome import SCHEMA
from racegate.history.witness import load_witness, save
from racegate.jobs.findability import alike, findability_in, listed
from racegate.jobs.fleet.matrix import matrix_in
from racegate.jobs.generated import CampaignSpec
from racegate.jobs.stores.choice import written_store
from racegate.jobs.stores.folder import witness_name
from racegate.jobs.stores.records import CampaignState, KeptFinding
from racegate.jobs.verify import verify as run_verify
from racegate.report.dashboard.targets import print_matrix
from racegate.report.objects import FindingsObject
from racegate.report.search import print_findings, print_verified

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="What campaigns have found (see `fuzz`)."
)
app.command()(serve)
app.add_typer(triage_app)


@app.command()
def findings(
    store: WrittenStoreOption,
    fault: FaultOption = None,
    target: TargetOption = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write their witnesses here.", callback=folder_to_fill),
    ] = None,
    causes: Annotated[
        bool | None,
        typer.Option("--causes", help="Run each witness, and say which findings lack one edge."),
    ] = None,
    json: JsonOption = None,
) -> None:
    """List findings with their hit rates, and how long a clean run says that one is gone."""
    opened = written_store(store, subject_given(fault, target))
    found, states = opened.findings(), opened.states()
    for finding in found if out is not None else ():
        assert out is not None
        save(finding.witness, out / witness_name(finding.signature))
    entries = tuple(listed(found, states))
    shown = FindingsObject(
        schema=SCHEMA,
        store=opened.name,
        campaigns=len(states),
        scenarios=sum(state.done for state in states),
        findings=entries,
        causes=causes_of({one.signature: one.witness for one in found}) if causes else None,
        targets=None if fault or target else matrix_in(store),
    )
    tell(json, shown, lambda: _print(shown))


def _print(shown: FindingsObject) -> None:
    console = stdout_console()
    if shown.campaigns or shown.targets is None:
        print_findings(console, shown)
    if shown.targets is not None:
        print_matrix(console, shown.targets)


@app.command()
def verify(
    finding: Annotated[
        str, typer.Argument(metavar="FINDING", help="A witness file, or a signature.")
    ],
    store: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            envvar="RACEGATE_STORE",
            help="Where campaigns counted it; without it the folder of the witness.",
        ),
    ] = None,
    fault: FaultOption = None,
    scenarios: Annotated[
        int | None, typer.Option(min=1, help="At most so many, and no answer if more are needed.")
    ] = None,
    workers: WorkersOption = 1,
    json: JsonOption = None,
) -> None:
    """Say whether a finding is fixed: replay it, then look at as many new scenarios as that takes.
    0 fixed (at 99 %), 1 still there, 4 too few scenarios to say, 3 what was found does not replay.
    """
    file = Path(finding) if finding.endswith(".json") else None
    if store is None and file is None:
        fail("give --store, or a witness file in its campaign's folder")
    opened = written_store(store or str((file or Path()).parent), fault)
    states = opened.states()
    kept = _chosen(finding, file, opened.findings(), states)
    state = next((one for one in states if one.seed == kept.seed), None)
    if state is None or (before := findability_in(alike(state, states), kept.signature)) is None:
        fail(f"{opened.name}: no campaign here has counted {kept.signature}")
    spec = CampaignSpec(
        seed=state.seed, fault=state.fault, holds_each=state.holds_each, benign=state.benign
    )
    with counted("scenarios without it", total=scenarios or before.clean_run) as on_scenario:
        found = run_verify(
            kept,
            spec,
            before,
            first_new=state.done,
            scenarios_max=scenarios,
            workers=workers,
            on_scenario=on_scenario,
        )
    tell(json, found, lambda: print_verified(stdout_console(), found))
    raise typer.Exit(found.exit_code)


def _chosen(
    given: str, file: Path | None, findings: list[KeptFinding], states: list[CampaignState]
) -> KeptFinding:
    """The finding that is meant, by the signature that campaigns counted: a minimal form may go by
    another name, its file does not.
    """
    if file is None:
        known = {finding.signature: finding for finding in findings}
        return known.get(given) or fail(f"no finding here has the signature {given}")
    witness = load_witness(file)
    counted_as = {signature for state in states for signature in state.hits}
    named = (name for name in sorted(counted_as) if witness_name(name) == file.name)
    signature = next(named, witness.signature)
    return KeptFinding(signature=signature, is_minimal=True, witness=witness)
