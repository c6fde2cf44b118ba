"""Terminal report: one table for the gate, and findings a runner developer can act on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table

from racegate.explore.features.apart import PairCoverage
from racegate.history.breakage import Breakage
from racegate.history.finding import ASSUMPTIONS, Finding, FindingKind, Verdict
from racegate.history.gates.known import standing_in
from racegate.history.outcome import UNAUDITED, RunResult, SharedFinding, shared_findings
from racegate.report.cause.account import Account
from racegate.report.cause.pair import Relation
from racegate.report.causes import ToldCause, last_line, print_causes, told_plainly
from racegate.scenario.untrusted.console import line, lines
from racegate.scenario.untrusted.text import many

if TYPE_CHECKING:  # or a single run would import the gate
    from racegate.check.selfcheck import SelfCheck
    from racegate.jobs.gate import GateResult

FINDINGS_SHOWN_MAX = 8

STYLE = {
    Verdict.PROVED: "green",
    Verdict.BENIGN: "green",
    Verdict.DIVERGENT: "bold red",
    Verdict.CONFLICT: "red",
    Verdict.DEADLOCK: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.BROKEN_HARNESS: "bold magenta",
}


class ShownFinding(NamedTuple):
    """What is shown of a finding. picture: lines"""

    account: Account
    picture: Sequence[str]


def gate_table(results: Sequence[RunResult]) -> Table:
    """One row per scenario, whatever ran it."""
    table = Table(title=None, caption=None)
    table.add_column("scenario", overflow="fold")
    for name in ("steps", "ops", "conflicts", "wrong", "landings"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    table.add_column("seconds", justify="right")
    for run in results:
        wrong = sum(finding.kind is not FindingKind.CONFLICT for finding in run.findings)
        stats = run.stats
        table.add_row(
            run.scenario,
            *map(str, (stats.steps, stats.ops, stats.conflicts, wrong, tried_of(run))),
            line((_cell(run), STYLE[run.verdict])),
            f"{stats.seconds:.3f}",
        )
    return table


def tried_of(run: RunResult) -> str:
    """How many runs under holds were made, and of how many, where that is known."""
    known = run.tried.known
    return f"{run.tried.number} of {known}" if known else str(max(0, run.stats.schedules - 1))


def _cell(run: RunResult) -> str:
    """The verdict in a table: with what was tried where the word rests on it."""
    return run.text if run.verdict is Verdict.BENIGN else str(run.verdict)


class GateView(StrEnum):
    """How much of a gate is printed. CAUSES: a screen; ALL: also each scenario"""

    CAUSES = "causes"
    ALL = "all"


def print_gate(
    console: Console,
    result: GateResult,
    causes: Sequence[ToldCause] | None = None,
    detail: GateView = GateView.CAUSES,
    shown: Mapping[str, ShownFinding] | None = None,
) -> None:
    """Each cause once, what else keeps the gate from passing, and the verdict with its assumptions.

    causes: looked into; None: as the findings say them; shown: of scenarios, by name
    """
    if causes is None:
        causes = [told_plainly(shared) for shared in standing_findings(result)]
    if detail is GateView.ALL:
        console.print(gate_table(result.scenarios))
        for run in result.scenarios:
            if run.findings or run.unmet or run.breakages:
                console.print(line((run.scenario, "bold")))
                _print_details(console, run, (shown or {}).get(run.scenario))
    print_causes(console, causes, STYLE)
    if detail is GateView.CAUSES:
        print_unfinished(console, result.scenarios)
    print_reasons(console, "not exercised", result.unmet)
    if any(UNAUDITED in run.warnings for run in result.scenarios):
        print_reasons(console, "warning", [UNAUDITED])
    for run in result.scenarios:
        texts = [f"{run.scenario}: {change.text}" for change in run.resolved]
        print_reasons(console, "warning", texts)
    _print_must_fail(console, result)
    print_breakages(console, result.breakages)
    print_selfcheck(console, result.selfcheck)
    if result.pairs:
        console.print(f"pairs of features that can occur together: {pairs_text(result.pairs)}")
    stats = result.stats
    counts = (
        f"{many(stats.scenarios, 'scenario')}, {many(stats.steps, 'step')}, "
        f"{many(stats.ops, 'operation')}, {many(stats.conflicts, 'conflict')}, "
        f"{many(stats.findings, 'finding')}"
    )
    if causes:
        console.print(counts)
        counts = last_line(causes, scenarios=stats.scenarios)
    told = line((result.verdict, STYLE[result.verdict]), f": {counts}")
    console.print(told, soft_wrap=True)
    if result.verdict is Verdict.PROVED:
        _print_assumptions(console)


def standing_findings(result: GateResult) -> tuple[SharedFinding, ...]:
    """What a gate counts and its baseline, if it has one, does not let stand."""
    runs = standing_in(result.scenarios, result.baseline)
    return shared_findings(runs, benign=result.benign)


def print_unfinished(console: Console, results: Sequence[RunResult]) -> None:
    """Scenarios that did not exercise what they had to, and errors of the harness in them."""
    unmet = [f"{run.scenario}: {reason}" for run in results for reason in run.unmet]
    print_reasons(console, "not exercised", unmet[:FINDINGS_SHOWN_MAX])
    if len(unmet) > FINDINGS_SHOWN_MAX:
        console.print(f"... and {len(unmet) - FINDINGS_SHOWN_MAX} more (-v has all)")
    for run in results:
        print_breakages(console, run.breakages)


def pairs_text(pairs: Iterable[PairCoverage]) -> str:
    """How many occurred, by numerics."""
    return ", ".join(f"{one.covered} of {one.possible} {one.numerics}" for one in pairs)


def _print_must_fail(console: Console, result: GateResult) -> None:
    if not result.must_fail:
        return
    missed = [entry for entry in result.must_fail if entry.is_missed]
    for entry in missed:
        expected, seen = entry.expected_signature, entry.signature or "no finding"
        what = f": {entry.witness}: {entry.outcome}; expected {expected}, seen {seen}"
        console.print(line(("must fail and did not", "bold red"), what))
    found = len(result.must_fail) - len(missed)
    console.print(f"{found} of {many(len(result.must_fail), 'witness')} that must fail did")


def print_selfcheck(console: Console, check: SelfCheck) -> None:
    """What a job found out about itself."""
    for problem in check.problems:
        console.print(line(("broken harness", "bold magenta"), f": {problem}"))
    in_c = f" ({check.both_cores} in C and in Python)" if check.both_cores else ""
    console.print(
        f"self-check: {check.canaries_found} of {many(check.canaries, 'canary')} found, "
        f"{many(check.double_runs, 'run')} made twice{in_c}, {check.mismatches} of them different"
    )


def print_run(
    console: Console, run: RunResult, shown: ShownFinding | None = None, further: str = ""
) -> None:
    """One run: configuration, verdict, findings, counts. shown: of what was found

    further: what came of looking for a run in which a user sees it
    """
    fault = () if run.fault is None else (", fault ", (run.fault, "bold"))
    console.print(line((run.scenario, "bold"), f" on {run.device}", *fault))
    engine = run.config["engine"]
    console.print(
        f"depth {engine['depth']}, k {engine['draft_len_max']}, drafter {engine['drafter']}, cache "
        f"{engine['cache_mode']}, numerics {run.config['model']['numerics']}"
    )
    print_reasons(console, "warning", run.warnings)
    for hold in run.holds:
        state = ("realised", "") if hold.realised else ("not realised", "yellow")
        counts = f" ({hold.realised} of {many(hold.matched, 'operation')})"
        console.print(line(f"hold {hold.hold}: ", state, counts))
    _print_details(console, run, shown)
    if further:
        console.print(further)
    stats = run.stats
    console.print(
        f"{many(stats.steps, 'step')}, {many(stats.ops, 'operation')} ({stats.overlapped_ops} may "
        f"run while the host prepares a later step), {many(stats.host_waits, 'host wait')}, "
        f"{many(stats.row_moves, 'row move')}, {many(stats.rejections, 'rejection')}, "
        f"{many(stats.preemptions, 'preemption')}, {stats.seconds:.3f} s"
    )
    console.print(line((run.text, STYLE[run.verdict]), _searched(run)))
    if run.verdict is Verdict.PROVED:
        _print_assumptions(console)


def _searched(run: RunResult) -> str:
    """How the verdict was come by, if more than one schedule was run."""
    search = run.search
    if search is None or search.schedules == 1:
        return ""
    text = f" after {many(search.schedules, 'schedule')} (ladder: {search.stage})"
    if search.classes is not None:
        whole = "all" if search.is_complete else f"of about {search.estimate:.0f}"
        text += f", {search.classes} classes explored, {whole}"
    if search.seconds_left is not None:
        text += f", about {search.seconds_left:.0f} s left for the rest"
    return text


def _print_details(console: Console, run: RunResult, shown: ShownFinding | None) -> None:
    """One cause, with its picture and what follows from it; the oracles name causes first."""
    if shown is not None:
        print_cause(console, shown.account)
        print_picture(console, shown.picture)
        _print_consequences(console, shown.account.consequences)
    elif run.findings:
        print_finding(console, run.findings[0])
        _print_consequences(console, run.findings[1:])
    print_reasons(console, "not exercised", run.unmet)
    print_breakages(console, run.breakages)


def print_picture(console: Console, picture: Sequence[str]) -> None:
    """A timeline, with room around it."""
    for drawn in ("", *picture, "") if picture else ():
        console.print(drawn, highlight=False)


def _print_consequences(console: Console, findings: Sequence[Finding]) -> None:
    if not findings:
        return
    console.print(line(("in the same run", "bold"), f", {len(findings)} more:"))
    for finding in findings[:FINDINGS_SHOWN_MAX]:
        console.print(line("  ", (str(finding.kind), "red"), f"  {finding.message}"))
    hidden = len(findings) - FINDINGS_SHOWN_MAX
    if hidden > 0:
        console.print(f"  ... and {many(hidden, 'more finding')} (all of them with --json -)")


def print_reasons(console: Console, what: str, reasons: Iterable[str]) -> None:
    """A line for each reason. what: stands in front of it"""
    for reason in reasons:
        console.print(line((what, "yellow"), f": {reason}"))


def print_breakages(console: Console, breakages: Iterable[Breakage]) -> None:
    """Errors of the harness, a paragraph each."""
    for breakage in breakages:
        console.print(line(("broken harness", "bold magenta"), f": {breakage.text}"))


def print_cause(console: Console, account: Account) -> None:
    """What would happen to a user, the pair, whose the rows are, the edge, and how to see it. What
    is an argument of other commands is never broken into lines.
    """
    console.print(line((account.cause.signature, "bold")), soft_wrap=True)
    console.print(_cause_panel(account))
    _print_replay(console, account.replay)


def _print_replay(console: Console, replay: str) -> None:
    if replay:
        console.print(line((f"replay: {replay}", "bold")), soft_wrap=True)


def _cause_panel(account: Account) -> Panel:
    facts = Table.grid(padding=(0, 2))
    first, second = account.first, account.second
    if first is not None and second is not None:
        is_race = account.relation is Relation.UNORDERED
        between = "nothing orders it with" if is_race else "and, under every timing, behind it"
        facts.add_row(line(("pair", "dim")), f"{first.name} on {first.lane} {first.verb}")
        facts.add_row("", between)
        facts.add_row("", f"{second.name} on {second.lane} {second.verb}")
    if account.buffer is not None:
        places = [f"{account.buffer} {place.text}" for place in account.places]
        more = [f"and {account.more_rows} more"] if account.more_rows else []
        facts.add_row(line(("rows", "dim")), lines([*places, *more] or [account.buffer]))
    facts.add_row(line(("edge", "dim")), account.to_add)
    if account.edge is not None:
        facts.add_row("", f"without it {account.edge.reason}")
    if account.relation is Relation.ORDERED:
        facts.add_row(line(("seen", "dim")), lines(account.cause.message.split("\n")))
    parts: list[RenderableType] = [line((account.impact, "bold")), "", facts]
    return Panel(Group(*parts), border_style="red")


def print_finding(console: Console, finding: Finding) -> None:
    """A finding with its facts and the command that shows it again."""
    console.print(line((finding.signature, "bold")), soft_wrap=True)
    console.print(_finding_panel(finding))
    _print_replay(console, finding.replay)


def _finding_panel(finding: Finding) -> Panel:
    facts = Table.grid(padding=(0, 2))
    for name in ("buffer", "op", "other", "edge", "step", "request", "layer", "field"):
        value = getattr(finding, name)
        if value is not None:
            facts.add_row(line((name, "dim")), str(value))
    if finding.kind is not FindingKind.CONFLICT:
        facts.add_row(line(("expected", "dim")), str(finding.expected))
        facts.add_row(line(("actual", "dim")), str(finding.actual))
    parts: list[RenderableType] = [lines(finding.message.split("\n")), facts]
    return Panel(Group(*parts), border_style="red")


def _print_assumptions(console: Console) -> None:
    console.print(
        "One run without a conflict proves every schedule of the scenario (same outcome), assuming:"
    )
    for assumption in ASSUMPTIONS:
        console.print(f"  - {assumption}")
