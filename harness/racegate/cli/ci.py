"""Options of the gate for CI: reports in forms that services show, a baseline, and what changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from racegate.cli.options import fail, place_to_write, say, write_json, write_text
from racegate.history.finding import Verdict
from racegate.history.outcome import Checked
from racegate.jobs.gate import GateResult, GateSpec
from racegate.jobs.ratchet import Ratchet, compared, load_baseline, save_baseline
from racegate.scenario.untrusted.text import many

JunitOption = Annotated[
    Path | None,
    typer.Option("--junit", metavar="PATH", help="Write JUnit XML.", callback=place_to_write),
]
SarifOption = Annotated[
    Path | None,
    typer.Option("--sarif", metavar="PATH", help="Write SARIF 2.1.0.", callback=place_to_write),
]
GithubOption = Annotated[
    bool | None,
    typer.Option("--github", help="Annotate, and fill the summary of a step, of GitHub Actions."),
]
BaselineOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Known findings, which may only disappear."),
]
UpdateOption = Annotated[
    bool | None,
    typer.Option(
        "--update-baseline", help="Write the baseline if there is none, or drop what is gone."
    ),
]
ChangedOption = Annotated[
    str | None,
    typer.Option(
        metavar="REF",
        help="Only scenarios and witnesses that differ from this commit; all if anything else "
        "does.",
    ),
]


class CiOptions(NamedTuple):
    """What was asked for beside the report.

    is_github: the summary of a step is filled; is_annotated: standard output takes annotations
    is_update: the baseline is written
    """

    junit: Path | None = None
    sarif: Path | None = None
    is_github: bool = False
    is_annotated: bool = False
    baseline: Path | None = None
    is_update: bool = False

    def check(self) -> None:
        """Before anything is run. Raises BaselineError."""
        if self.is_update and self.baseline is None:
            fail("--update-baseline needs --baseline FILE")
        if self.baseline is not None and (self.baseline.exists() or not self.is_update):
            load_baseline(self.baseline)
        if self.is_update:
            place_to_write(self.baseline)
        if self.is_github:
            place_to_write(os.environ.get("GITHUB_STEP_SUMMARY"))


def beside_baseline(result: GateResult, options: CiOptions) -> GateResult:
    """The result beside its baseline, which is written or made smaller if that is asked for."""
    path = options.baseline
    if path is None or result.verdict is Verdict.BROKEN_HARNESS:
        return result  # what a broken harness saw, or did not see, says nothing
    if options.is_update and not path.exists():
        first = compared(result.scenarios, (), benign=result.benign).new
        save_baseline(path, first)
        say(f"wrote {path}: {many(len(first), 'finding')}")
    ratchet = compared(result.scenarios, load_baseline(path), benign=result.benign)
    if ratchet.gone and options.is_update:
        save_baseline(path, ratchet.left)
    _tell(ratchet, path, options)
    return msgspec.structs.replace(result, baseline=ratchet)


def _tell(ratchet: Ratchet, path: Path, options: CiOptions) -> None:
    for one in ratchet.new:
        say(f"not in {path}: {one.scenario}: {one.signature}")
    for one in ratchet.gone:
        done = "dropped" if options.is_update else "--update-baseline drops it"
        say(f"gone, and still in {path}: {one.scenario}: {one.signature} ({done})")


def write_reports(result: GateResult, given: GateSpec, options: CiOptions) -> None:
    """The forms that were asked for. What writes each is imported for it."""
    files = {scenario.name: str(path) for path, scenario in given.scenarios}
    if options.junit is not None or options.sarif is not None:
        from racegate.report.ci.failing import checked_gate

        write_checked(checked_gate(result, files), options.junit, options.sarif)
    if options.is_github:
        from racegate.report.ci.github import annotations_of, summary_of

        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            with Path(summary).open("a", encoding="utf-8") as file:
                file.write(summary_of(result, files))
        for line in annotations_of(result, files) if options.is_annotated else ():
            print(line)


def write_checked(checked: Checked, junit: Path | None, sarif: Path | None) -> None:
    """Any job, in the forms that were asked for."""
    if junit is not None:
        from racegate.report.ci.junit import junit_of

        write_text(junit, junit_of(checked))
    if sarif is not None:
        from racegate.report.ci.sarif import sarif_of

        write_json(str(sarif), sarif_of(checked))
