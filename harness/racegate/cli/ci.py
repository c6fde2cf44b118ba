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
from racegate.history.gates.known import KnownFinding, KnownMode, Ratchet
from racegate.history.outcome import Checked, RunResult
from racegate.jobs.gate import GateResult, GateSpec
from racegate.jobs.ratchet import compared, load_known, save_known, with_reason
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
    """

    path: Path
    mode: KnownMode = KnownMode.BASELINE
    is_update: bool = False
    reason: str = ""

    @property
    def is_written(self) -> bool:
        """Whether the file may be made."""
        is_new = self.is_update and self.mode is KnownMode.BASELINE
        return is_new or bool(self.reason)

    def check(self) -> None:
        """Before anything is run. Raises BaselineError."""
        self.load()
        if self.is_update:
            place_to_write(self.path)

    def load(self) -> tuple[KnownFinding, ...]:
        """What is let stand; nothing of a file that is still to be made. Raises BaselineError."""
        if self.is_written and not self.path.exists():
            return ()
        return load_known(self.path, self.mode)


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
        return {(one.scenario, one.signature): one.reason for one in self.known.load()}


def ci_options(
    *,
    junit: JunitOption = None,
    sarif: SarifOption = None,
    github: GithubOption = None,
    baseline: BaselineOption = None,
    accept: AcceptOption = None,
    reason: ReasonOption = None,
    update_baseline: UpdateOption = None,
) -> CiOptions:
    """The options of every command that CI gates by."""
    known = _known_options(baseline, accept, reason, is_update=bool(update_baseline))
    found = CiOptions(junit, sarif, bool(github), known)
    found.check()
    return found


def _known_options(
    baseline: Path | None, accept: Path | None, reason: str | None, *, is_update: bool
) -> KnownOptions | None:
    if baseline is not None and accept is not None:
        fail("--baseline and --accept both say what is let stand: give one of them")
    if reason is not None and (accept is None or not reason.strip()):
        fail("--reason needs --accept FILE, and says why what is found is meant")
    if baseline is not None:
        return KnownOptions(baseline, KnownMode.BASELINE, is_update)
    if accept is not None:
        said = (reason or "").strip()
        return KnownOptions(accept, KnownMode.ACCEPTED, is_update or bool(said), said)
    if is_update:
        fail("--update-baseline needs --baseline FILE or --accept FILE")
    return None


with_ci = with_set("ci", ci_options)


def ratchet_of(results: Sequence[RunResult], options: CiOptions, benign: Benign) -> Ratchet | None:
    """What was found beside what is known, whose file is written or made smaller if that is asked
    for; None without one, or where the harness is broken: what that saw, or did not see, says
    nothing.
    """
    known = options.known
    if known is None or any(one.verdict is Verdict.BROKEN_HARNESS for one in results):
        return None
    before = known.load()
    found = _beside(results, before, known, benign)
    if not known.path.exists() or (known.reason and found.new):
        added = with_reason(found.new, known.reason)
        save_known(known.path, (*before, *added))
        say(f"wrote {known.path}: {many(len(added), 'finding')}")
        found = _beside(results, (*before, *added), known, benign)
    _tell(found, known)
    if found.gone and known.is_update:
        save_known(known.path, found.left)
        found = _beside(results, found.left, known, benign)
    return found


def _beside(
    results: Sequence[RunResult],
    before: Sequence[KnownFinding],
    known: KnownOptions,
    benign: Benign,
) -> Ratchet:
    return compared(results, before, benign=benign, mode=known.mode, file=str(known.path))


def _tell(ratchet: Ratchet, known: KnownOptions) -> None:
    path, word = known.path, _FLAGS[known.mode]
    for one in ratchet.new:
        say(f"not in {path}: {one.scenario}: {one.signature}")
    for one in ratchet.gone:
        done = "dropped" if known.is_update else f"{word} drops it"
        reason = f", accepted because {one.reason}" if one.reason else ""
        say(f"gone, and still in {path}: {one.scenario}: {one.signature}{reason} ({done})")


def write_reports(
    result: GateResult, given: GateSpec, options: CiOptions, json: str | None
) -> None:
    """The forms that were asked for. What writes each is imported for it. json: as of the option,
    because standard output that is JSON takes no annotations
    """
    if options == CiOptions(known=options.known):
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
