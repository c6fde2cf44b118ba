"""What the commands of targets that are not ours write of what they found: one page of all, or a
page and a witness of each cause.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from racegate.cli.options import write_text
from racegate.cli.pictures import write_cause
from racegate.history.finding import Benign, Finding, one_per_cause
from racegate.history.outcome import RunResult, SharedFinding
from racegate.history.witness import SealedWitness
from racegate.interpose.outcome import Plan
from racegate.jobs.foreign.recorded import recorded_run
from racegate.report.causes import told_findings
from racegate.report.timeline.recorded import recorded_trace
from racegate.targets.common.landings import Ran
from racegate.targets.program.judge import ProgramVerdict
from racegate.targets.program.launch import Program
from racegate.targets.program.result import ProgramResult
from racegate.targets.program.workflow.witness import witnesses_of

WitnessOf = Callable[[RunResult, Finding], SealedWitness | None]
PageOf = Callable[[Sequence[Finding], RunResult], str]
Written = dict[str, tuple[str, ...]]  # by signature, what is printed of the files of its cause


def write_results_page(html: Path | None, results: Sequence[RunResult]) -> None:
    """If it was asked for. jinja2 is imported for it and nothing else."""
    if html is None:
        return
    from racegate.report.finding.race import results_page

    write_text(html, results_page(results))


def write_run_trace(path: Path | None, run: Callable[[Plan], Ran], title: str) -> None:
    """If it was asked for: one more run, in which nothing is held, with all that is recorded."""
    if path is None:
        return
    outcome, log = recorded_run(run)
    write_text(path, recorded_trace(log, outcome.findings, title).decode())


def cause_page(findings: Sequence[Finding], result: RunResult) -> str:
    """The page of findings of one cause, from what the result says of them."""
    from racegate.report.finding.page import finding_page
    from racegate.report.finding.race import pictured_cause

    return finding_page(pictured_cause(findings, result))


def write_causes(
    out: Path | None,
    results: Sequence[RunResult],
    witness_of: WitnessOf,
    *,
    benign: Benign,
    page_of: PageOf = cause_page,
) -> Written:
    """A witness and a page for each cause, if a folder was named. witness_of: what replays a
    finding, if anything does
    """
    written: Written = {}
    for shared in () if out is None else told_findings(results, benign=benign):
        assert out is not None
        if shared.signature in written:
            continue
        run, findings = _cause_of(shared)
        witnesses = (witness_of(run, finding) for finding in findings)
        witness = next(filter(None, witnesses), None)
        files = write_cause(out, shared.signature, page_of(findings, run), witness)
        written |= dict.fromkeys((one.signature for one in findings), files)
    return written


def _cause_of(shared: SharedFinding) -> tuple[RunResult, list[Finding]]:
    """The run that tells most of a finding, with all of its findings of that cause, it first."""
    from racegate.report.finding.race import shown_findings

    run, finding = shared.seen[0]
    found = next(one for one in one_per_cause(shown_findings(run)) if finding in one)
    return run, [finding, *(one for one in found if one is not finding)]


def write_program_causes(
    out: Path | None, result: ProgramResult, verdicts: ProgramVerdict, program: Program
) -> Written:
    """The same of a program: what is let stand is no cause."""
    found = {one.signature: one for one in witnesses_of(verdicts, program)}
    let_stand = {one.signature for one in verdicts.suppressed}
    standing = tuple(one for one in result.findings if one.signature not in let_stand)
    told = msgspec.structs.replace(result, findings=standing)

    def witness_of(run: RunResult, finding: Finding) -> SealedWitness | None:
        return found.get(finding.signature)

    return write_causes(out, [told], witness_of, benign=verdicts.benign)
