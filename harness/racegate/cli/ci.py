"""Options of the gate for CI: reports in forms that services show, a baseline, and what changed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from racegate.cli.options import fail, place_to_write, say, write_json, write_text
from racegate.cli.sets import with_set
from racegate.history.finding import Benign, Verdict
from racegate.history.gates.known import (
    BaselineFile,
    KnownMode,
    KnownPlace,
    PlacedFindings,
    Ratchet,
    baseline_of,
)
from racegate.history.outcome import Checked, RunResult
from racegate.jobs.gate import GateResult, GateSpec
from racegate.jobs.ratchet import (
    compared,
    first_baseline,
    load_baseline,
    save_baseline,
    with_reason,
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
        "--update-accepted",
        help="Write the baseline if there is none, or drop what is gone; of --accept, drop it.",
    ),
]
AcceptOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Findings that are meant; one that is gone is an error."),
]
ReasonOption = Annotated[
    str | None,
    typer.Option(metavar="TEXT", help="Add what is found to the file of --accept, with this."),
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


# What drops from a file of known findings what is gone.
_FLAGS = {KnownMode.BASELINE: "--update-baseline", KnownMode.ACCEPTED: "--update-accepted"}


def detail_of(verbose: bool | None) -> GateView:  # noqa: FBT001
    """How much of a gate is printed, by the option --verbose."""
    from racegate.report.text import GateView

    return GateView.ALL if verbose else GateView.CAUSES


class KnownOptions(NamedTuple):
    """A file of findings that are let stand. mode: how; is_update: what is gone is dropped

    reason: with which what is found is added, if it is to be; what is gone is dropped then too
    places: whose races a new file has by their place
    """

    path: Path
    mode: KnownMode = KnownMode.BASELINE
    is_update: bool = False
    reason: str = ""
    places: tuple[KnownPlace, ...] = ()

    @property
    def is_first(self) -> bool:
        """Whether the file is still to be made."""
        is_written = bool(self.reason) if self.mode is KnownMode.ACCEPTED else self.is_update
        return is_written and not self.path.exists()

    def check(self) -> None:
        """Before anything is run. Raises BaselineError."""
        self.load()
        if self.places and not self.is_first:
            fail(
                "--suppress is for the first --write-baseline FILE alone; into a FILE that is "
                'there a place is written by hand, under "places", where a reviewer sees it'
            )
        if self.is_update:
            place_to_write(self.path)

    def load(self) -> BaselineFile:
        """What is let stand; nothing of a file that is still to be made. Raises BaselineError."""
        return baseline_of(()) if self.is_first else load_baseline(self.path, self.mode)

    def beside(
        self, results: Sequence[RunResult], baseline: BaselineFile, benign: Benign
    ) -> Ratchet:
        """What was found beside what the file has."""
        path = str(self.path)
        return compared(results, baseline, benign=benign, mode=self.mode, file=path)


class CiOptions(NamedTuple):
    """What was asked for beside the report.

    is_github: a step of GitHub is told; known: findings that are let stand, if there are any
    """

    junit: Path | None = None
    sarif: Path | None = None
    is_github: bool = False
    known: KnownOptions | None = None

    def check(self) -> None:
        """Before anything is run. Raises BaselineError."""
        if self.known is not None:
            self.known.check()
        if self.is_github:
            place_to_write(os.environ.get("GITHUB_STEP_SUMMARY"))

    def reasons(self) -> dict[tuple[str, str], str]:
        """Of what was accepted before, by scenario and signature."""
        if self.known is None or self.known.mode is not KnownMode.ACCEPTED:
            return {}
        return {(one.scenario, one.signature): one.reason for one in self.known.load().known}


def ci_options(
    *,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    github: GithubOption = None,
    baseline: BaselineOption = None,
    accept: AcceptOption = None,
    reason: ReasonOption = None,
    update_baseline: UpdateOption = None,
    suppress: SuppressOption = None,
) -> CiOptions:
    """The options of every command that CI gates by."""
    places = tuple(map(_place_named, suppress or ()))
    known = _known_options(baseline, accept, reason, places, is_update=bool(update_baseline))
    found = CiOptions(junit, sarif, bool(github), known)
    found.check()
    return found


def _known_options(
    baseline: Path | None,
    accept: Path | None,
    reason: str | None,
    places: tuple[KnownPlace, ...],
    *,
    is_update: bool,
) -> KnownOptions | None:
    if baseline is not None and accept is not None:
        fail("--baseline and --accept both say what is let stand: give one of them")
    if reason is not None and (accept is None or not reason.strip()):
        fail("--reason needs --accept FILE, and says why what is found is meant")
    if baseline is not None:
        return KnownOptions(baseline, KnownMode.BASELINE, is_update, places=places)
    if accept is not None:
        said = (reason or "").strip()
        return KnownOptions(accept, KnownMode.ACCEPTED, is_update or bool(said), said, places)
    if places:
        fail("--suppress is for --write-baseline FILE")
    if is_update:
        fail("--update-baseline needs --baseline FILE or --accept FILE")
    return None


def _place_named(text: str) -> KnownPlace:
    file, _, function = text.partition(":")
    if not file or text.endswith(":"):
        fail(f"--suppress {text}: FILE or FILE:FUNCTION is expected, as in 'loaders/*.py:Loader.*'")
    return KnownPlace(file=file, function=function or "*")


with_ci = with_set("ci", ci_options)


def ratchet_of(results: Sequence[RunResult], options: CiOptions, benign: Benign) -> Ratchet | None:
    """What was found beside what is known, whose file is written or made smaller if that is asked
    for; None without one, or where the harness is broken: what that saw, or did not see, says
    nothing.
    """
    known = options.known
    if known is None or any(one.verdict is Verdict.BROKEN_HARNESS for one in results):
        return None
    before, is_first = known.load(), known.is_first
    found = known.beside(results, before, benign)
    if is_first:
        written = with_reason(first_baseline(results, known.places, benign=benign), known.reason)
        _tell_first(written, known)
    elif known.reason and found.new:
        added = (*found.left.known, *found.new)
        written = with_reason(baseline_of(added, found.left.places), known.reason)
        say(f"added to {known.path}: {many(len(found.new), 'finding')}")
    else:
        written = found.left if known.is_update else before
    _tell_gone(found, known)
    if is_first or written != before:
        save_baseline(known.path, written)
        found = known.beside(results, written, benign)
    _tell(found, known)
    return found


def _tell_first(written: BaselineFile, known: KnownOptions) -> None:
    by_place = many(len(written.places), "place")
    say(f"wrote {known.path}: {many(len(written.known), 'finding')} by signature, {by_place}")
    for place in set(known.places) - {_as_named(one) for one in written.places}:
        say(f"not in {known.path}: --suppress {place.name} matches no race")


def _as_named(place: KnownPlace) -> KnownPlace:
    return KnownPlace(file=place.file, function=place.function)


def _tell(ratchet: Ratchet, known: KnownOptions) -> None:
    if ratchet.known:
        say(f"{known.path}: {many(len(ratchet.known), 'known finding')} seen, and let stand")
    for one in ratchet.new:
        say(f"not in {known.path}: {one.name}")
    for placed in ratchet.placed:
        if placed.findings:
            say(f"{known.path}: {_told_placed(placed)}")


def _tell_gone(ratchet: Ratchet, known: KnownOptions) -> None:
    done = "dropped" if known.is_update else f"{_FLAGS[known.mode]} drops it"
    told = [(one.name, one.reason) for one in ratchet.gone]
    told += [(f"every race at {place.name}", place.reason) for place in ratchet.stale]
    for name, reason in told:
        why = f", accepted because {reason}" if reason else ""
        say(f"gone, and still in {known.path}: {name}{why} ({done})")


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
