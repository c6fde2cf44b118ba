"""What campaigns have found, as text: hit rates, and whether something is fixed."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from racegate.jobs.findability import Findability
from racegate.jobs.verify import VerifyObject, VerifyOutcome
from racegate.report.objects import FindingsObject
from racegate.report.text import print_breakages, print_selfcheck
from racegate.scenario.outside.console import line

STYLES = {
    VerifyOutcome.FIXED: "green",
    VerifyOutcome.TOO_SHORT: "yellow",
    VerifyOutcome.STILL_THERE: "bold red",
    VerifyOutcome.FLAKY: "bold red",
}


def print_findings(console: Console, found: FindingsObject) -> None:
    """A line for each, the rarest last."""
    console.print(line(f"{found.store}: {found.campaigns} campaigns, {found.scenarios} scenarios"))
    table = Table("signature", "first seen in", "hits", "rate (99 %)", "clean run to say fixed")
    for one in found.findings:
        met = one.findability
        table.add_row(
            one.signature,
            f"scenario {one.scenario} of seed {one.seed}",
            "not counted" if met is None else f"{met.hits} of {met.scenarios}",
            "" if met is None else rate_of(met),
            "" if met is None else f"{met.clean_run} scenarios",
        )
    console.print(table if found.findings else "no finding")


def rate_of(met: Findability) -> str:
    """A rate with its interval."""
    return f"{met.rate:.2g} ({met.rate_low:.2g} to {met.rate_high:.2g})"


def print_verified(console: Console, found: VerifyObject) -> None:
    """Whether a finding is fixed, and how sure that is."""
    console.print(line((str(found.outcome), STYLES[found.outcome]), f": {found.signature}"))
    before = found.before
    console.print(line(f"before: {before.hits} of {before.scenarios} scenarios, {rate_of(before)}"))
    console.print(line(f"its witness now: {found.replay}"))
    if found.seen_in is not None:
        console.print(line(f"scenario {found.seen_in} shows it"))
    if found.rate_below is not None:
        needed = f"{found.scenarios} of the {before.clean_run} scenarios that it takes"
        console.print(line(f"{needed}: none shows it; rate below {found.rate_below:.2g} at 99 %"))
    print_breakages(console, found.breakages)
    print_selfcheck(console, found.selfcheck)
