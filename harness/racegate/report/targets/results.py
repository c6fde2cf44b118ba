"""Results of targets that are not ours in the terminal: one judged scenario, and a gate's table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from racegate.history.finding import Benign, Finding, exit_code, one_per_cause
from racegate.history.gates.results import ComparedVerdict, GatedResults
from racegate.history.outcome import RunResult
from racegate.report.causes import (
    ToldCause,
    also_facts,
    compared_word,
    lacking,
    last_line,
    print_causes,
    told_findings,
    told_plainly,
)
from racegate.report.text import (
    FINDINGS_SHOWN_MAX,
    STYLE,
    GateView,
    gate_table,
    print_finding,
    print_reasons,
    print_unfinished,
    tried_of,
)
from racegate.scenario.untrusted.console import line, lines
from racegate.scenario.untrusted.text import many

Details = Callable[[], None]
# Why findings were accepted, by scenario and signature.
Reasons = Mapping[tuple[str, str], str]
_NO_REASONS: Reasons = {}
_BOTH_FAIL = "ended with an error on both sides"
# How a gate beside a base ends: the word, and its style.
_COMPARED = {
    ComparedVerdict.SAME: ("SAME as", "green"),
    ComparedVerdict.INCONCLUSIVE: ("INCONCLUSIVE beside", "yellow"),
    ComparedVerdict.DIFFERENT: ("DIFFERENT from", "bold red"),
    ComparedVerdict.STALE: ("SAME as, with stale entries,", "yellow"),
    ComparedVerdict.UNFINISHED: ("NOT WHOLLY COMPARED with", "bold magenta"),
}


def print_judgement(console: Console, result: RunResult, details: Details | None = None) -> None:
    """What was found, the verdict, and what it does not cover. details: prints what was found, if
    the target has a form of its own for that
    """
    planted = "" if result.fault is None else f", planted: {result.fault}"
    console.print(f"{result.scenario} on {result.target} ({result.device}){planted}")
    for hold in result.holds:
        state = "realised" if hold.realised else "not realised"
        console.print(f"hold {hold.hold}: {state}")
    if details is None:
        _print_findings(console, result)
    else:
        details()
    print_reasons(console, "not exercised", result.unmet)
    print_reasons(console, "not seen", result.not_seen)
    if result.message:
        console.print(lines(result.message.split("\n")))
    console.print(line((result.text, STYLE[result.verdict]), f": {counts_of(result)}"))


def print_comparison(console: Console, result: RunResult, reasons: Reasons = _NO_REASONS) -> None:
    """What a scenario shows on a change and not on its base; what both show is one line. reasons:
    of what was accepted
    """
    beside = result.comparison
    assert beside is not None
    console.print(f"{result.scenario} on {result.target} beside {beside.base}")
    for findings in one_per_cause(beside.findings):
        _print_cause(console, result.scenario, findings, reasons)
    for signature in beside.repaired:
        console.print(line(("REPAIRED", "green"), f" {signature}"))
    print_reasons(console, "not exercised, unlike in the base", beside.unmet)
    print_reasons(console, _BOTH_FAIL, [beside.failed] if beside.failed else [])
    console.print(f"known: {beside.known} conflicts, and {result.verdict} by itself")


def _print_cause(
    console: Console, scenario: str, findings: Sequence[Finding], reasons: Reasons
) -> None:
    """What lacks one edge: one in full, that which a run shows if there is one."""
    given = {one.signature: reasons.get((scenario, one.signature)) for one in findings}
    for reason, accepted in _by_reason(findings, given):
        names = ", ".join(one.signature for one in accepted)
        console.print(line(("ACCEPTED", "green"), f" {reason}: {names}"), soft_wrap=True)
    left = [one for one in findings if given[one.signature] is None]
    if not left:
        return
    told = next((one for one in left if one.holds), left[0])
    word = compared_word(told)
    first, *rest = told.message.split("\n")
    console.print(line((word, "bold red"), f" {first}"))
    also = also_facts([one for one in left if one is not told])
    lacks = [] if told.race is None else [("lacks it", lacking(told.race))]
    for text in (*rest, *(f"{name}: {fact}" for name, fact in (*lacks, *also))):
        console.print(line(f"  {text}"))
    if told.replay:
        console.print(f"  replay: {told.replay}", soft_wrap=True)  # to be copied


def _by_reason(
    findings: Sequence[Finding], given: Mapping[str, str | None]
) -> list[tuple[str, list[Finding]]]:
    """What was accepted, by why."""
    found: dict[str, list[Finding]] = {}
    for one in findings:
        reason = given[one.signature]
        if reason is not None:
            found.setdefault(reason, []).append(one)
    return list(found.items())


def counts_of(result: RunResult) -> str:
    """What a verdict rests on."""
    stats = result.stats
    counts = ", ".join(
        (
            many(stats.steps, "step"),
            many(stats.ops, "operation"),
            many(stats.conflicts, "conflict"),
        )
    )
    if stats.schedules == 1 and not result.tried.known:
        return counts
    tried = tried_of(result)
    return f"{counts}, {tried} {'landing' if tried == '1' else 'landings'} run"


def _print_findings(console: Console, result: RunResult) -> None:
    for finding in result.findings[:FINDINGS_SHOWN_MAX]:
        print_finding(console, finding)
    hidden = len(result.findings) - FINDINGS_SHOWN_MAX
    if hidden > 0:
        console.print(f"... and {many(hidden, 'more finding')} (all of them with --json -)")


def print_target_gate(
    console: Console,
    gate: GatedResults,
    *,
    benign: Benign,
    detail: GateView = GateView.CAUSES,
    told: Sequence[str] = (),
    written: Mapping[str, tuple[str, ...]] | None = None,
) -> None:
    """Each cause once, or a row and the findings of each scenario too; those that were not run by
    name, and the verdict of all.

    told: scenarios that were printed before; written: by signature, what was written of its cause
    """
    files = written or {}
    causes = [
        told_plainly(shared)._replace(files=files.get(shared.signature, ()))
        for shared in told_findings(gate.standing, benign=benign)
    ]
    if any(result.comparison for result in gate.results):
        _print_compared(console, gate, causes, detail=detail, told=told)
        return
    if detail is GateView.ALL:
        _print_each(console, gate, told)
    else:
        print_unfinished(console, gate.run)
    for result in gate.results:
        if result.refused:
            console.print(f"not run: {result.scenario}: {result.refused}")
    print_causes(console, causes, STYLE)
    _print_verdict(console, gate, causes)


def _print_each(console: Console, gate: GatedResults, told: Sequence[str]) -> None:
    console.print(gate_table(gate.run))
    _print_findings_of(console, gate, told)


def _print_findings_of(console: Console, gate: GatedResults, told: Sequence[str]) -> None:
    for result in gate.run:
        if exit_code([result.verdict]) and result.scenario not in told:
            # What none of them covers is said once, below.
            print_judgement(console, msgspec.structs.replace(result, not_seen=()))


def _print_unseen(console: Console, gate: GatedResults) -> None:
    unseen = (text for result in gate.results for text in result.not_seen)
    print_reasons(console, "not seen", dict.fromkeys(unseen))


def _print_verdict(console: Console, gate: GatedResults, causes: Sequence[ToldCause]) -> None:
    _print_unseen(console, gate)
    said = (str(gate.verdict), STYLE[gate.verdict])
    missing = len(gate.results) - len(gate.run)
    not_run = f", {missing} not run (--except NAME leaves one out)" if missing else ""
    total = len(gate.run)
    what = last_line(causes, scenarios=total) if causes else many(total, "scenario")
    console.print(line(said, f": {what}{not_run}"), soft_wrap=True)


def _print_compared(
    console: Console,
    gate: GatedResults,
    causes: Sequence[ToldCause],
    *,
    detail: GateView,
    told: Sequence[str],
) -> None:
    """Beside its base: what is new, each cause once, or scenario by scenario too."""
    if detail is GateView.ALL:
        console.print(_compared_table(gate.run))
        _print_findings_of(console, gate, told)
    for result in gate.results:
        if result.refused:
            console.print(f"not run: {result.scenario}: {result.refused}")
    if detail is GateView.CAUSES:
        _print_let_pass(console, gate)
    print_reasons(console, _BOTH_FAIL, _failed_in(gate.run))
    _print_unseen(console, gate)
    print_causes(console, causes, STYLE)
    console.print(compared_line(gate))


def _print_let_pass(console: Console, gate: GatedResults) -> None:
    """What is no cause: what was accepted, by why, what is repaired, and what nobody knows."""
    accepted: dict[str, dict[str, None]] = {}
    for one in () if gate.baseline is None else gate.baseline.known:
        accepted.setdefault(one.reason, {})[one.signature] = None
    for reason, signatures in accepted.items():
        names = ", ".join(signatures)
        console.print(line(("ACCEPTED", "green"), f" {reason}: {names}"), soft_wrap=True)
    found = [(one.scenario, one.comparison) for one in gate.run if one.comparison is not None]
    for signature in dict.fromkeys(chain.from_iterable(beside.repaired for _, beside in found)):
        console.print(line(("REPAIRED", "green"), f" {signature}"))
    unmet = [f"{name}: {text}" for name, beside in found for text in beside.unmet]
    print_reasons(console, "not exercised, unlike in the base", unmet)


def _failed_in(results: Sequence[RunResult]) -> list[str]:
    """Errors that scenarios end with on both sides, each once with all of those."""
    found: dict[str, list[str]] = {}
    for one in results:
        if one.comparison is not None and one.comparison.failed:
            found.setdefault(one.comparison.failed, []).append(one.scenario)
    return [f"{', '.join(names)}: {error}" for error, names in found.items()]


def _compared_table(results: Sequence[RunResult]) -> Table:
    """A row per scenario on a change: what its base has not, and what both have."""
    table = Table("scenario", "changed")
    for name in ("new", "repaired", "known"):
        table.add_column(name, justify="right")
    table.add_column("verdict by itself")
    for result in results:
        beside = result.comparison
        assert beside is not None
        changed = "" if beside.changed is None else str(beside.changed.field)
        counts = (len(beside.new), len(beside.repaired), beside.known)
        verdict = line((str(result.verdict), STYLE[result.verdict]))
        table.add_row(result.scenario, changed, *map(str, counts), verdict)
    return table


def compared_line(gate: GatedResults) -> Text:
    """The last line beside a base: what differs, and how the job ends."""
    found = [one.comparison for one in gate.run if one.comparison is not None]
    assert gate.compared is not None
    word, style = _COMPARED[gate.compared]
    causes = len({finding.cause for one in found for finding in one.new})
    new = len({finding.signature for one in found for finding in one.new})
    repaired = len({signature for one in found for signature in one.repaired})
    changed = sum(one.changed is not None for one in found)
    of = f" of {many(causes, 'missing edge')}" if causes < new else ""
    counts = f"{changed} changed, {many(new, 'new conflict')}{of}, {repaired} repaired"
    if (known := gate.baseline) is not None:
        counts += f"; {len(known.standing)} of these differences let stand"
        counts += f", {len(known.expired)} accepted and gone" if known.expired else ""
    ran = many(len(gate.run), "scenario")
    return line((word, style), f" {found[0].base}: {ran}, {counts}")
