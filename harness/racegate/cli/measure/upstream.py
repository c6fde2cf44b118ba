"""What `racegate report --upstream` does: one finding for those who maintain a library."""

from __future__ import annotations

import shlex
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from racegate.cli.options import fail, place_to_write, say, write_text
from racegate.interpose.errors import BadInput
from racegate.scenario.errors import BadInputError
from racegate.targets.common.server import PrintPlace

REPAIR_RUNS = 120


class UpstreamOptions(NamedTuple):
    """What a report to maintainers is made of, and where it is written. history: may be left out"""

    witness: Path | None
    facts: Path | None
    history: Path | None
    page: Path | None


def upstream_options(
    *,
    upstream: Annotated[
        Path | None,
        typer.Option(
            metavar="WITNESS",
            help="Of a program around a library: write the page for who maintains that, with the "
            "repair and a plain test. Needs --facts and --markdown.",
        ),
    ] = None,
    facts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --upstream: TOML with package, harm and public."),
    ] = None,
    history: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --upstream: the JSON of racegate history."),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --upstream: the page.", callback=place_to_write),
    ] = None,
) -> UpstreamOptions:
    """The options of such a report. Ends the command where they do not belong together."""
    if upstream is None and (facts or history or markdown):
        fail("--facts, --history and --markdown are of one finding: --upstream WITNESS")
    if upstream is not None and (facts is None or markdown is None):
        fail("--upstream needs --facts FILE and --markdown FILE")
    return UpstreamOptions(upstream, facts, history, markdown)


def write_upstream(asked: UpstreamOptions) -> bool:
    """Runs what the page says, and writes it, with the plain test beside it; False if none is
    asked for.

    Raises BadInputError if the program has the finding no longer, or the package is not installed.
    """
    witness, facts, history, page = asked
    if witness is None or facts is None or page is None:
        return False
    from racegate.report.published.programs import load_facts, load_range, upstream_page
    from racegate.targets.program.launch import open_device
    from racegate.targets.program.repairs.upstream import upstream_material
    from racegate.targets.program.workflow.witness import PROGRAM_WITNESSES

    known, told = PROGRAM_WITNESSES.load(witness), load_facts(facts)
    installed = _installed(told.package, facts)
    versions = f"Only {installed} was judged." if history is None else load_range(history)
    try:
        with open_device(stdout=PrintPlace.STDERR) as device:
            found = upstream_material(device, known, runs_max=REPAIR_RUNS)
    except BadInput as error:
        raise BadInputError(str(error)) from error
    test = f"test_{page.stem}.py" if found.test.text else ""
    text = upstream_page(
        found,
        told,
        version=installed,
        versions=versions,
        command=shlex.join(known.argv),
        test=test,
    )
    if test:
        write_text(page.parent / test, found.test.text)
    write_text(page, text)
    say(f"wrote {page}" + (f" and {page.parent / test}" if test else ""))
    return True


def _installed(package: str, facts: Path) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        fail(f"{facts}: {package} is not installed in this Python")
