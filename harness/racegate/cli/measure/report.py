"""The command report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from racegate.check.checker import Checker
from racegate.cli.measure.upstream import UpstreamOptions, upstream_options, write_upstream
from racegate.cli.options import (
    JsonOption,
    fail,
    folder_to_fill,
    place_to_write,
    progress_bar,
    say,
    stdout_console,
    tell,
    write_bytes,
    write_json,
    write_text,
)
from racegate.cli.sets import with_set
from racegate.history.outcome import SCHEMA
from racegate.history.witness import load_witnesses
from racegate.report.finding.drawing import pictured_beside, seen_in_witness
from racegate.report.measured.gpu import PAGE, load_folder, render_gpu, targets
from racegate.report.objects import SiteFile, SiteObject
from racegate.scenario.shipped import shipped_scripts
from racegate.scenario.untrusted.console import line

if TYPE_CHECKING:
    from racegate.history.witness import Witness
    from racegate.report.finding.pictured import PicturedFinding
    from racegate.report.site.pages import SitePage
    from racegate.report.site.reports import Reports

app = typer.Typer(add_completion=False)

MARKER = "site.json"
WITNESS_SUFFIX = ".witness.json"


def site_folder(target: Path | None) -> Path | None:
    """For --site: a folder that is new, empty or a site already. Nothing else is written over."""
    if target is not None and target.is_dir():
        is_other = any(target.iterdir()) and not (target / MARKER).is_file()
        if is_other:
            fail(f"{target}: holds other things than a site (no {MARKER}); name a new folder")
    return folder_to_fill(target)


@app.command()
@with_set("upstream", upstream_options)
def report(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR",
            show_default=False,
            help="With the JSON files of a GPU; with --site the folder of all reports (reports).",
        ),
    ] = None,
    site: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Write all reports as a static site here: pages that load nothing.",
            callback=site_folder,
        ),
    ] = None,
    witnesses: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default="those that come with racegate",
            help="With --site: witnesses, each with a page of its own.",
        ),
    ] = None,
    *,
    upstream: UpstreamOptions,
    json: JsonOption = None,
) -> None:
    """Put what was measured on a GPU beside its limits: writes DIR/README.md from the JSON files
    there. With --site: make pages of all reports, with their figures, commands and commits. With
    --upstream: one finding for the maintainers of a library.
    """
    if write_upstream(upstream):
        return
    if site is not None:
        _write_site(site, folder or Path("reports"), witnesses, json)
        return
    if folder is None:
        fail("name a folder of a GPU's JSON files, or a place for the site: --site DIR")
    if witnesses is not None or json is not None:
        fail("--witnesses and --json are of a site: name a place for it, --site DIR")
    place_to_write(folder / PAGE)
    found = load_folder(folder)
    write_text(folder / PAGE, render_gpu(found))
    for target in targets(found):
        style = "green" if target.is_met else "bold yellow"
        stdout_console().print(line((f"{target.shown:>28}", style), f"  {target.name}"))


def _write_site(target: Path, folder: Path, witnesses: Path | None, json: str | None) -> None:
    """All that is bad is noticed before the first page is written."""
    from racegate.jobs.environment import last_commits
    from racegate.report.site.pages import site_of
    from racegate.report.site.reports import load_reports

    reports = load_reports(folder, last_commits(folder))
    files = load_witnesses(witnesses or shipped_scripts() / "witnesses")
    pages = site_of(reports, _pictured(files))
    for page in pages:
        _write(target / page.path, page.html.encode())
    for evidence in reports.evidence:
        _write(target / evidence.file, reports.content(evidence.file))
    for path, _ in files:
        _write(target / "witnesses" / path.name, path.read_bytes())
    made = _object(target, pages, reports)
    write_json(str(target / MARKER), made)
    tell(json, made, lambda: _show(target, made))


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(path, content)


def _pictured(files: list[tuple[Path, Witness]]) -> dict[str, PicturedFinding]:
    """Each witness is run, beside schedules that differ in one hold."""
    found = {}
    with progress_bar() as progress:
        task = progress.add_task("witnesses", total=len(files))
        for path, witness in files:
            name = path.name.removesuffix(WITNESS_SUFFIX)
            progress.update(task, description=name)
            # The site has the file: it is named as it lies there.
            checker = Checker(witness.scenario, replay=f"racegate run {path.name}")
            seen = seen_in_witness(witness, checker, Path(path.name))
            if seen is None:
                say(f"{path}: nothing was found, so it has no page")
            else:
                found[name] = pictured_beside(seen)
            progress.advance(task)
    return found


def _object(target: Path, pages: list[SitePage], reports: Reports) -> SiteObject:
    made = [
        SiteFile(path=page.path, title=page.title, bytes=len(page.html.encode())) for page in pages
    ]
    return SiteObject(schema=SCHEMA, folder=str(target), pages=tuple(made), files=reports.evidence)


def _show(target: Path, made: SiteObject) -> None:
    console = stdout_console()
    console.print(f"{len(made.pages)} pages, {len(made.files)} files of figures")
    console.print(str(target / "index.html"), soft_wrap=True)
