"""Foreign engines in the terminal: the conformance kit line by line, judgements, a gate's table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from rich.console import Console
from rich.table import Table

from racegate.history.exit_code import ExitCode
from racegate.history.finding import Benign, FindingKind, Verdict, exit_code
from racegate.history.outcome import SCHEMA
from racegate.report.text import FINDINGS_SHOWN_MAX, finding_panel
from racegate.scenario.untrusted.console import Piece, line, lines
from racegate.targets.adapters.conformance import CheckOutcome, ConformanceCheck
from racegate.targets.adapters.judge import Judgement

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


def print_judgement(console: Console, judged: Judgement) -> None:
    """Findings, verdict, and what it does not cover."""
    _print_details(console, judged)
    _print_not_seen(console, judged.not_seen)
    _print_verdict(console, judged)


def _print_details(console: Console, judged: Judgement) -> None:
    result = judged.result
    planted = "" if result.fault is None else f", planted: {result.fault}"
    console.print(
        f"{result.scenario} on {judged.engine} {judged.version} ({result.device}){planted}"
    )
    for hold in result.holds:
        state = "realised" if hold.realised else "not realised"
        console.print(f"hold {hold.hold}: {state}")
    for finding in result.findings[:FINDINGS_SHOWN_MAX]:
        console.print(finding_panel(finding))
    hidden = len(result.findings) - FINDINGS_SHOWN_MAX
    if hidden > 0:
        console.print(f"... and {hidden} more findings (all of them with --json -)")
    for reason in result.unmet:
        console.print(line(("not exercised", "yellow"), f": {reason}"))


def _print_not_seen(console: Console, reasons: Iterable[str]) -> None:
    for reason in reasons:
        console.print(line(("not seen", "yellow"), f": {reason}"))


def _print_verdict(console: Console, judged: Judgement) -> None:
    tried = ""
    if judged.landings_all:
        tried = f", {judged.landings} of {judged.landings_all} landings run"
    stats = judged.result.stats
    counts = f"{stats.steps} steps, {stats.ops} operations, {stats.conflicts} conflicts{tried}"
    verdict = judged.result.verdict
    said = (judged.result.text, _styled(verdict)[1])
    console.print(line(said, f": {counts}"))


class AdapterGateObject(msgspec.Struct, frozen=True, kw_only=True):
    """A foreign engine over many scenarios.

    verdict: the one that decides the exit code; judgements: one per scenario, also of those that
        the engine does not run
    """

    schema: str
    verdict: Verdict
    judgements: tuple[Judgement, ...]

    @classmethod
    def of(cls, judged: Sequence[Judgement]) -> AdapterGateObject:
        """The sum of what was judged: nothing at all is inconclusive."""
        verdicts = _verdicts(judged)
        code = exit_code(verdicts)
        decisive = (verdict for verdict in verdicts if exit_code([verdict]) is code)
        verdict = next(decisive, Verdict.INCONCLUSIVE)
        return cls(schema=SCHEMA, verdict=verdict, judgements=tuple(judged))

    def exit_code(self, benign: Benign) -> ExitCode:
        """What the gate ends with. benign: what BENIGN is for it"""
        return exit_code(_verdicts(self.judgements), benign=benign)


def _verdicts(judged: Sequence[Judgement]) -> list[Verdict]:
    """Of the scenarios that the engine runs."""
    return [each.result.verdict for each in judged if each.refused is None]


def print_adapter_gate(console: Console, gate: AdapterGateObject) -> None:
    """A row per scenario that the engine can run, the others by name, and the verdict of all."""
    console.print(_gate_table(gate))
    for each in gate.judgements:
        if each.refused is not None:
            console.print(f"not run: {each.result.scenario}: {each.refused}")
        elif exit_code([each.result.verdict]):
            _print_details(console, each)
            _print_verdict(console, each)
    unseen = (text for each in gate.judgements for text in each.not_seen)
    _print_not_seen(console, dict.fromkeys(unseen))
    number = sum(each.refused is None for each in gate.judgements)
    console.print(line(_styled(gate.verdict), f": {number} scenarios"))


def _gate_table(gate: AdapterGateObject) -> Table:
    table = Table()
    table.add_column("scenario", overflow="fold")
    for name in ("steps", "ops", "conflicts", "wrong", "landings"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for each in gate.judgements:
        if each.refused is None:
            result = each.result
            wrong = sum(finding.kind is not FindingKind.CONFLICT for finding in result.findings)
            counts = (result.stats.steps, result.stats.ops, result.stats.conflicts, wrong)
            cells = (*map(str, counts), f"{each.landings} of {each.landings_all}")
            table.add_row(result.scenario, *cells, line(_styled(result.verdict)))
    return table


def _styled(verdict: Verdict) -> Piece:
    return verdict, "green" if exit_code([verdict]) == 0 else "bold red"
