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
from racegate.jobs.ratchet import (
    KnownPlace,
    PlacedFindings,
    Ratchet,
    compared,
    first_baseline,
    load_baseline,
    save_baseline,
)
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
SuppressOption = Annotated[
    list[str] | None,
    typer.Option(
        "--suppress",
        metavar="'FILE[:FUNCTION]'",
        help="With --write-baseline: races here are written as one entry. * stands for any text.",
    ),
]
NoStoreOption = Annotated[
    bool | None,
    typer.Option(
        "--no-store",
        envvar="RACEGATE_NO_STORE",
        help="Neither begin with the last run's failures, nor keep this run's for the next.",
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
    places: whose races a new baseline has by their place
    """

    junit: Path | None = None
    sarif: Path | None = None
    is_github: bool = False
    baseline: Path | None = None
    is_update: bool = False
    places: tuple[KnownPlace, ...] = ()

    def check(self) -> None:
        """Before anything is run. Raises BaselineError."""
        if self.is_update and self.baseline is None:
            fail("--update-baseline needs --baseline FILE")
        if self.baseline is not None and (self.baseline.exists() or not self.is_update):
            load_baseline(self.baseline)
        is_first = self.is_update and self.baseline is not None and not self.baseline.exists()
        if self.places and not is_first:
            fail(
                "--suppress is for the first --write-baseline FILE alone; into a FILE that is "
                'there a place is written by hand, under "places", where a reviewer sees it'
            )
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
    suppress: SuppressOption = None,
) -> CiOptions:
    """The options of every command that CI gates by."""
    places = tuple(map(_place_named, suppress or ()))
    found = CiOptions(junit, sarif, bool(github), baseline, bool(update_baseline), places)
    found.check()
    return found


def _place_named(text: str) -> KnownPlace:
    file, _, function = text.partition(":")
    if not file or text.endswith(":"):
        fail(f"--suppress {text}: FILE or FILE:FUNCTION is expected, as in 'loaders/*.py:Loader.*'")
    return KnownPlace(file=file, function=function or "*")


with_ci = with_set("ci", ci_options)


def ratchet_of(results: Sequence[RunResult], options: CiOptions, benign: Benign) -> Ratchet | None:
    """What was found beside the baseline, which is written or made smaller if that is asked for;
    None without one, or where the harness is broken: what that saw, or did not see, says nothing.
    """
    path = options.baseline
    if path is None or any(one.verdict is Verdict.BROKEN_HARNESS for one in results):
        return None
    if options.is_update and not path.exists():
        first = first_baseline(results, options.places, benign=benign)
        save_baseline(path, first)
        by_place = many(len(first.places), "place")
        say(f"wrote {path}: {many(len(first.known), 'finding')} by signature, {by_place}")
        for place in set(options.places) - {_as_named(one) for one in first.places}:
            say(f"not in {path}: --suppress {place.name} matches no race")
    ratchet = compared(results, load_baseline(path), benign=benign)
    if ratchet.is_smaller and options.is_update:
        save_baseline(path, ratchet.left)
    _tell(ratchet, path, options)
    return ratchet


def _as_named(place: KnownPlace) -> KnownPlace:
    return KnownPlace(file=place.file, function=place.function)


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
    done = "dropped" if options.is_update else "--update-baseline drops it"
    for one in ratchet.new:
        say(f"not in {path}: {one.scenario}: {one.signature}")
    for one in ratchet.gone:
        say(f"gone, and still in {path}: {one.scenario}: {one.signature} ({done})")
    for placed in ratchet.placed:
        if placed.findings:
            say(f"{path}: {_told_placed(placed)}")
    for place in ratchet.stale:
        say(f"gone, and still in {path}: every race at {place.name} ({done})")


def _told_placed(placed: PlacedFindings) -> str:
    """How much a place lets stand: no finding is hidden without a word."""
    causes = many(len(placed.causes), "cause")
    if placed.is_outgrown:
        most = placed.place.causes_max
        return (
            f"{placed.place.name} was written for {most}, and {causes} are there now: one of them "
            f"is new, and none stands: {'; '.join(placed.causes)}"
        )
    return f"{placed.place.name} lets {many(len(placed.findings), 'finding')} of {causes} stand"


def write_reports(
    result: GateResult, given: GateSpec, options: CiOptions, json: str | None
) -> None:
    """The forms that were asked for. What writes each is imported for it. json: as of the option,
    because standard output that is JSON takes no annotations
    """
    if not (options.junit or options.sarif or options.is_github):
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
