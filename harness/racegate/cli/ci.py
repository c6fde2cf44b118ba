"""Options of the gate for CI: reports in forms that services show, a baseline, and what changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import typer

from racegate.cli.options import fail, place_to_write, say, write_json, write_text
from racegate.cli.sets import with_set
from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, Verdict
from racegate.history.outcome import Checked, GatedResults, RunResult
from racegate.jobs.gate import GateResult, GateSpec
from racegate.jobs.ratchet import Ratchet, compared, load_baseline, save_baseline
from racegate.scenario.untrusted.text import many

if TYPE_CHECKING:
    from racegate.report.text import GateView

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
        "--update-baseline",
        "--write-baseline",
        help="Write the baseline if there is none, or drop what is gone.",
    ),
]
VerboseOption = Annotated[
    bool | None,
    typer.Option("--verbose", "-v", help="Print every scenario, not only each cause."),
]
ChangedOption = Annotated[
    str | None,
    typer.Option(
        metavar="REF",
        help="Only scenarios and witnesses that differ from this commit; all if anything else "
        "does.",
    ),
]


def detail_of(verbose: bool | None) -> GateView:  # noqa: FBT001
    """How much of a gate is printed, by the option --verbose."""
    from racegate.report.text import GateView

    return GateView.ALL if verbose else GateView.CAUSES


class CiOptions(NamedTuple):
    """What was asked for beside the report.

    is_github: a step of GitHub is told; is_update: the baseline is written
    """

    junit: Path | None = None
    sarif: Path | None = None
    is_github: bool = False
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


def ci_options(
    *,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    github: GithubOption = None,
    baseline: BaselineOption = None,
    update_baseline: UpdateOption = None,
) -> CiOptions:
    """The options of every command that CI gates by."""
    found = CiOptions(junit, sarif, bool(github), baseline, bool(update_baseline))
    found.check()
    return found


with_ci = with_set("ci", ci_options)


def ratchet_of(results: Sequence[RunResult], options: CiOptions, benign: Benign) -> Ratchet | None:
    """What was found beside the baseline, which is written or made smaller if that is asked for;
    None without one, or where the harness is broken: what that saw, or did not see, says nothing.
    """
    path = options.baseline
    if path is None or any(one.verdict is Verdict.BROKEN_HARNESS for one in results):
        return None
    if options.is_update and not path.exists():
        first = compared(results, (), benign=benign).new
        save_baseline(path, first)
        say(f"wrote {path}: {many(len(first), 'finding')}")
    ratchet = compared(results, load_baseline(path), benign=benign)
    if ratchet.gone and options.is_update:
        save_baseline(path, ratchet.left)
    _tell(ratchet, path, options)
    return ratchet


def code_beside(results: GatedResults, ratchet: Ratchet | None, benign: Benign) -> ExitCode:
    """What a gate of a target ends with: what its baseline lets stand counts as a pass."""
    if ratchet is None:
        return results.exit_code(benign)
    passed = [
        msgspec.structs.replace(one, verdict=Verdict.PROVED, comparison=None)
        if ratchet.lets_stand(one)
        else one
        for one in results.results
    ]
    return msgspec.structs.replace(results, results=tuple(passed)).exit_code(benign)


def _tell(ratchet: Ratchet, path: Path, options: CiOptions) -> None:
    for one in ratchet.new:
        say(f"not in {path}: {one.scenario}: {one.signature}")
    for one in ratchet.gone:
        done = "dropped" if options.is_update else "--update-baseline drops it"
        say(f"gone, and still in {path}: {one.scenario}: {one.signature} ({done})")


def write_reports(
    result: GateResult, given: GateSpec, options: CiOptions, json: str | None
) -> None:
    """The forms that were asked for. What writes each is imported for it. json: as of the option,
    because standard output that is JSON takes no annotations
    """
    if options == CiOptions(baseline=options.baseline, is_update=options.is_update):
        return
    from racegate.report.ci.failing import checked_gate
    from racegate.report.ci.github import summary_of

    files = {scenario.name: str(path) for path, scenario in given.scenarios}
    checked = checked_gate(result, files)
    _write_files(checked, options)
    if options.is_github:
        _tell_github(checked, summary_of(result, files), json)


def write_checked(checked: Checked, verdict: str, options: CiOptions, json: str | None) -> None:
    """Any other job, in the forms that were asked for. json: as of `write_reports`"""
    _write_files(checked, options)
    if options.is_github:
        from racegate.report.ci.github import summary_of_checked

        _tell_github(checked, summary_of_checked(checked, verdict), json)


def _tell_github(checked: Checked, summary: str, json: str | None) -> None:
    from racegate.report.ci.github import annotations_of

    if path := os.environ.get("GITHUB_STEP_SUMMARY"):
        with Path(path).open("a", encoding="utf-8") as file:
            file.write(summary)
    for line in annotations_of(checked) if json != "-" else ():
        print(line)


def _write_files(checked: Checked, options: CiOptions) -> None:
    junit, sarif = options.junit, options.sarif
    if junit is not None:
        from racegate.report.ci.junit import junit_of

        write_text(junit, junit_of(checked))
    if sarif is not None:
        from racegate.report.ci.sarif import sarif_of

        write_json(str(sarif), sarif_of(checked))
