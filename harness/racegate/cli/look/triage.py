"""The commands campaign bisect and campaign report."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from racegate.check.checker import Checker
from racegate.check.repro.explain import explain_failure
from racegate.check.subject import LaunchMode
from racegate.cli.help.named import FaultOption
from racegate.cli.options import (
    JsonOption,
    fail,
    place_to_write,
    say,
    stdout_console,
    tell,
    write_text,
)
from racegate.faults.catalogue import find_fault
from racegate.history.schedule import parse_schedule
from racegate.history.witness import SealedWitness, Witness, load_witness
from racegate.jobs.environment import environment
from racegate.jobs.pools.time_limit import TIMEOUT_S
from racegate.jobs.stores.choice import written_store
from racegate.jobs.stores.folder import witness_name
from racegate.jobs.stores.witnesses import own_witness
from racegate.jobs.triage.checkout import Checkout
from racegate.jobs.triage.origin import AskedRevision, origin_of
from racegate.report.cause.shared import SharedCause, cause_of, shared_causes
from racegate.report.finding.drawing import Examined, seen_in_witness
from racegate.report.published.upstream import upstream_report
from racegate.report.search import print_origin
from racegate.scenario.untrusted.console import lines

FindingArgument = Annotated[
    str, typer.Argument(metavar="FINDING", help="A witness file, or a signature in a store.")
]
FindingStoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="PATH|URL",
        envvar="RACEGATE_STORE",
        help="Where a signature is looked up.",
    ),
]

app = typer.Typer(add_completion=False)


@app.command()
def bisect(
    finding: FindingArgument,
    good: Annotated[str, typer.Option(metavar="REVISION", help="Does not show the finding.")],
    bad: Annotated[str, typer.Option(metavar="REVISION", help="Shows it.")] = "HEAD",
    checkout: Annotated[
        Path, typer.Option(metavar="DIR", help="The repository of both, which is left alone.")
    ] = Path(),
    store: FindingStoreOption = None,
    fault: FaultOption = None,
    timeout: Annotated[
        float, typer.Option(min=0.0, metavar="SECONDS", help="For each revision. 0: none.")
    ] = TIMEOUT_S,
    json: JsonOption = None,
) -> None:
    """Name the revision that brought a finding: its witness is replayed with the sources of one
    after the other. 1 one is named, 4 it is one of several, 3 replays differ.
    """
    witness, _ = _given(finding, store, fault)

    def on_asked(asked: AskedRevision) -> None:
        say(f"{asked.revision.short} {asked.revision.subject}: {asked.shows}")

    found = origin_of(
        witness, Checkout(checkout), good=good, bad=bad, timeout_s=timeout, on_asked=on_asked
    )
    tell(json, found, lambda: print_origin(stdout_console(), found))
    raise typer.Exit(found.exit_code)


@app.command()
def report(
    finding: FindingArgument,
    store: FindingStoreOption = None,
    fault: FaultOption = None,
    markdown: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write it here, not to the terminal.", callback=place_to_write
        ),
    ] = None,
) -> None:
    """Draft the report to whoever maintains the engine, as Markdown: what, where, the smallest
    scenario, the missing edge, and how to see it again.
    """
    witness, file = _given(finding, store, fault)
    checker = Checker(witness.scenario)
    seen = seen_in_witness(witness, checker, file)
    if seen is None:
        _nothing_shown(witness)
    known = None if witness.fault is None else find_fault(witness.fault)
    blocking = checker.execute(fault=known, launches=LaunchMode.BLOCKING)
    page = upstream_report(
        witness,
        seen.found.account,
        explain_failure(checker, parse_schedule(list(witness.holds)), known),
        checker.judged(blocking, fault=known),
        environment() | {"machine": platform.machine()},
    )
    if markdown is None:
        stdout_console().print(lines(page.splitlines()), soft_wrap=True)
    else:
        write_text(markdown, page)


def _nothing_shown(witness: Witness) -> NoReturn:
    fail(f"{witness.title}: its witness shows nothing here, so there is nothing to report")


def _given(finding: str, store: str | None, fault: str | None) -> tuple[Witness, Path]:
    """A witness, and the file that replays it."""
    if finding.endswith(".json"):
        return load_witness(Path(finding)), Path(finding)
    if store is None:
        fail("give a witness file, or --store with a signature in it")
    opened = written_store(store, fault)
    known = {kept.signature: kept.witness for kept in opened.findings()}
    witness = known.get(finding) or fail(f"{opened.name}: no finding has the signature {finding}")
    return own_witness(witness), Path(witness_name(finding))


def causes_of(witnesses: dict[str, SealedWitness]) -> tuple[SharedCause, ...]:
    """Findings by what they lack, each run once. witnesses: by signature"""
    found = []
    for signature, witness in witnesses.items():
        seen = _seen(witness) if isinstance(witness, Witness) else None
        account = None if seen is None else seen.found.account
        found.append((signature, cause_of(account, minimal=witness.signature)))
    return shared_causes(found)


def _seen(witness: Witness) -> Examined | None:
    return seen_in_witness(witness, Checker(witness.scenario), Path(witness.scenario.name))
