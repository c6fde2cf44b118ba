"""Foreign engines in the terminal: the conformance kit line by line, judgements, a gate's table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from racegate.history.finding import FindingKind, exit_code
from racegate.history.outcome import GatedResults, RunResult
from racegate.report.text import FINDINGS_SHOWN_MAX, STYLE, finding_panel, print_reasons
from racegate.scenario.untrusted.console import line, lines
from racegate.targets.adapters.conformance import CheckOutcome, ConformanceCheck

_MARK = {
    CheckOutcome.PASSED: ("passed ", "green"),
    CheckOutcome.FAILED: ("FAILED ", "bold red"),
    CheckOutcome.SKIPPED: ("skipped", "yellow"),
}


def print_check(console: Console, check: ConformanceCheck) -> None:
    """One line; what was seen only where it did not pass."""
    console.print(line(_MARK[check.outcome], f" {check.name}"))
    if check.outcome is not CheckOutcome.PASSED:
        console.print(lines(f"        {text}" for text in check.detail.split("\n")))


def print_judgement(console: Console, result: RunResult) -> None:
    """Findings, verdict, and what it does not cover."""
    _print_details(console, result)
    print_reasons(console, "not seen", result.not_seen)
    _print_verdict(console, result)


def _print_details(console: Console, result: RunResult) -> None:
    planted = "" if result.fault is None else f", planted: {result.fault}"
    console.print(f"{result.scenario} on {result.target} ({result.device}){planted}")
    for hold in result.holds:
        state = "realised" if hold.realised else "not realised"
        console.print(f"hold {hold.hold}: {state}")
    for finding in result.findings[:FINDINGS_SHOWN_MAX]:
        console.print(finding_panel(finding))
    hidden = len(result.findings) - FINDINGS_SHOWN_MAX
    if hidden > 0:
        console.print(f"... and {hidden} more findings (all of them with --json -)")
    print_reasons(console, "not exercised", result.unmet)


def _print_verdict(console: Console, result: RunResult) -> None:
    tried = f", {_landings(result)} landings run" if result.tried.known else ""
    stats = result.stats
    counts = f"{stats.steps} steps, {stats.ops} operations, {stats.conflicts} conflicts{tried}"
    console.print(line((result.text, STYLE[result.verdict]), f": {counts}"))


def _landings(result: RunResult) -> str:
    """How many of all landings were run."""
    return f"{result.tried.number} of {result.tried.known}"


def print_adapter_gate(console: Console, gate: GatedResults) -> None:
    """A row per scenario that the engine can run, the others by name, and the verdict of all."""
    console.print(_gate_table(gate))
    for result in gate.results:
        if result.refused:
            console.print(f"not run: {result.scenario}: {result.refused}")
        elif exit_code([result.verdict]):
            _print_details(console, result)
            _print_verdict(console, result)
    unseen = (text for result in gate.results for text in result.not_seen)
    print_reasons(console, "not seen", dict.fromkeys(unseen))
    said = (str(gate.verdict), STYLE[gate.verdict])
    console.print(line(said, f": {len(gate.run)} scenarios"))


def _gate_table(gate: GatedResults) -> Table:
    table = Table()
    table.add_column("scenario", overflow="fold")
    for name in ("steps", "ops", "conflicts", "wrong", "landings"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for result in gate.run:
        stats = result.stats
        wrong = sum(finding.kind is not FindingKind.CONFLICT for finding in result.findings)
        counts = (stats.steps, stats.ops, stats.conflicts, wrong)
        said = (str(result.verdict), STYLE[result.verdict])
        table.add_row(result.scenario, *map(str, counts), _landings(result), line(said))
    return table
