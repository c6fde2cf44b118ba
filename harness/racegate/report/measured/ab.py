"""The A/B report on a terminal."""

from __future__ import annotations

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from racegate.history.replayed import ReplayOutcome
from racegate.measure.ab.held import HeldRun
from racegate.measure.ab.summary import SHORT, AbReport, ArmReport, Lengths
from racegate.scenario.untrusted.console import Piece, line

SIZES = ("generations", "rows", "max_tokens", "vocab_size", "size", "cache_mode", "seed", "device")
NAMED = ("device", "gpu", "driver", "cpu", "torch", "triton", "commit")


def print_ab(console: Console, report: AbReport) -> None:
    """What was run, how many generations are wrong, how long they are, and the held runs."""
    plan = report.plan
    console.print(", ".join(f"{name} {getattr(plan, name)}" for name in SIZES))
    for environment in report.environments:
        named = (f"{name} {environment[name]}" for name in NAMED if name in environment)
        console.print(f"on {', '.join(named)}", style="dim")
    truth = report.truth
    console.print(
        f"truth: {truth.generations} generations without speculation, depth 1, graphs off; "
        f"{truth.checked} of them compared with the CPU reference, none differs"
    )
    console.print(_outcomes(report))
    console.print(_lengths(report))
    for arm in report.arms:
        for stop in arm.stops:
            what = f" wave {stop.wave}: {stop.lost} lost: {stop.message}"
            console.print(line((arm.arm, "red"), what))
    for held in report.held:
        console.print(_held_line(held))
    published = report.published
    console.print(
        f"published: {published['below_limit_unpatched']} of {published['generations']} "
        f"generations below {published['limit']} tokens unpatched, "
        f"{published['below_limit_patched']} patched"
    )
    if report.missing:
        console.print(line(("not complete", "yellow"), f": {report.missing} waves are missing"))


def _outcomes(report: AbReport) -> Table:
    right = [Column(name, justify="right") for name in _OUTCOMES]
    table = Table(Column("arm", overflow="fold"), *right, title="generations against the truth")
    for arm in report.arms:
        table.add_row(str(arm.arm), *_outcome_cells(arm))
    return table


_OUTCOMES = (
    "all",
    "lost",
    "wrong",
    "first at",
    "shorter",
    "longer",
    "moves",
    "steps",
    "seconds",
    "tokens/s",
)


def _outcome_cells(arm: ArmReport) -> tuple[str | Text, ...]:
    place = "" if arm.first_wrong_median is None else f"{arm.first_wrong_median:.0f}"
    return (
        str(arm.generations),
        str(arm.lost),
        line((str(arm.wrong), "bold red" if arm.wrong else "")),
        place,
        str(arm.shorter),
        str(arm.longer),
        str(arm.counters.get("row_moves", 0)),
        str(arm.steps),
        f"{arm.seconds:.1f}",
        f"{arm.tokens_per_second:,.0f}",
    )


def _lengths(report: AbReport) -> Table:
    """Counts of the truth, and of each arm with the difference to the truth of its generations."""
    names = (*(f"< {limit}" for limit in SHORT), "median", "stop", "max_tokens", "tokens")
    right = [Column(name, justify="right") for name in names]
    table = Table(
        Column("arm", overflow="fold"),
        *right,
        title="output lengths (and how many more than the truth)",
    )
    truth = report.truth.lengths
    table.add_row("truth", *_length_cells(truth, truth))
    for arm in report.arms:
        table.add_row(str(arm.arm), *_length_cells(arm.found, arm.truth))
    return table


def _length_cells(found: Lengths, truth: Lengths) -> tuple[str, ...]:
    below = [_beside(found.below[str(limit)], truth.below[str(limit)]) for limit in SHORT]
    ends = [_beside(found.ends.get(end, 0), truth.ends.get(end, 0)) for end in _ENDS]
    return (*below, f"{found.median:.0f}", *ends, str(found.tokens))


_ENDS = ("stop", "max_tokens")


def _beside(found: int, truth: int) -> str:
    return str(found) if found == truth else f"{found} ({found - truth:+d})"


def _held_line(held: HeldRun) -> Text:
    under = " and ".join(held.holds) or "nothing held, completed at once"
    where = f"{held.witness} on {held.device}, {held.generations} requests, {held.steps} steps"
    if held.outcome is ReplayOutcome.REPRODUCED:
        said: Piece = f"shown by schedule {held.schedules}"
    else:
        said = (f"not shown, {held.outcome}", "bold red")
    return line(
        f"held: {held.fault}: ",
        said,
        f" ({under}; {where}), run in {held.run_seconds:.3f} s, "
        f"{held.seconds:.2f} s with reference and oracles",
    )
