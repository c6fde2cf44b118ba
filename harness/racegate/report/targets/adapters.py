"""The conformance kit in the terminal, line by line."""

from __future__ import annotations

from rich.console import Console

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
