"""Terminal reports of replay, explain, fuzz and ops."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.table import Column, Table

from racegate.check.repro.explain import Explained, Explanation, Racing
from racegate.check.repro.operations import OperationEntry, OpsObject, base_of, is_action
from racegate.check.repro.unrealised import in_ranges
from racegate.explore.features.summary import CoverageSummary, summarise
from racegate.history.replayed import Replay, ReplayOutcome, ReplaySummary
from racegate.jobs.campaign import Campaign
from racegate.jobs.findability import Findability
from racegate.jobs.generated import GeneratedFinding
from racegate.jobs.stores.records import CampaignState
from racegate.jobs.stores.witnesses import requests_in
from racegate.jobs.triage.bisect import Shows
from racegate.jobs.triage.origin import OriginObject, OriginOutcome
from racegate.jobs.verify import VerifyObject, VerifyOutcome
from racegate.oracles.paths import Ordered, PathStep
from racegate.report.cause.account import Account
from racegate.report.cause.shared import SharedCause
from racegate.report.objects import FindingsObject
from racegate.report.text import (
    ShownFinding,
    print_breakages,
    print_cause,
    print_picture,
    print_run,
    print_selfcheck,
)
from racegate.scenario.untrusted.console import line, lines
from racegate.scenario.untrusted.text import many

HOLDS_SHOWN_MAX = 24
LOSSES_SHOWN_MAX = 8
OUTCOME_STYLES = {
    VerifyOutcome.FIXED: "green",
    VerifyOutcome.TOO_SHORT: "yellow",
    VerifyOutcome.STILL_THERE: "bold red",
    VerifyOutcome.FLAKY: "bold red",
}

ORIGIN_STYLES = {
    OriginOutcome.FOUND: "bold red",
    OriginOutcome.RANGE: "yellow",
    OriginOutcome.FLAKY: "bold red",
}


def print_replay(console: Console, result: Replay, shown: ShownFinding | None = None) -> None:
    """What the replays showed, and whether they were the same bit for bit. shown: of the last"""
    print_run(console, result.last, shown)
    print_outcome(console, result)
    console.print(f"expected {result.expected_signature}")
    if result.outcome is not ReplayOutcome.REPRODUCED:
        console.print(f"seen     {result.signature or 'no finding'}")
    same = "bit-identical" if result.digests == 1 else f"{result.digests} different runs"
    recorded = "as recorded" if result.matches_record else _other_record(result)
    console.print(f"{same}, {recorded}")


def print_outcome(console: Console, result: ReplaySummary) -> None:
    """How often the worst outcome was seen, and of which witness."""
    count = result.outcomes.get(result.outcome, 0)
    style = "bold red" if result.outcome is ReplayOutcome.REPRODUCED else "yellow"
    what = f" {count} of {result.times}: {result.witness}"
    console.print(line((result.outcome, style), what))


def print_replays(
    console: Console, files: Sequence[Path], results: Sequence[ReplaySummary]
) -> None:
    """One line per witness, and what gave way in its script."""
    table = Table("witness", "outcome", Column("replays", justify="right"), "signature", "runs")
    for file, result in zip(files, results, strict=True):
        count = f"{result.outcomes.get(result.outcome, 0)} of {result.times}"
        same = "bit-identical" if result.digests == 1 else f"{result.digests} different"
        is_seen = result.outcome is ReplayOutcome.REPRODUCED  # of a release there is no signature
        seen = result.signature or result.message or ("as recorded" if is_seen else "no finding")
        name = file.name.removesuffix(".json").removesuffix(".witness")
        table.add_row(name, result.outcome, count, seen, same)
    console.print(table)
    for file, result in zip(files, results, strict=True):
        for change in result.resolved:
            console.print(line(("warning", "yellow"), f": {file.name}: {change.text}"))


def _other_record(result: Replay) -> str:
    made = ", ".join(f"{name} {number}" for name, number in result.recorded_with.items())
    return f"not the bits of the recorded run (made with {made})"


def print_explanation(
    console: Console,
    explanation: Explained,
    picture: Sequence[str] = (),
    account: Account | None = None,
) -> None:
    """A path that orders a pair, or what a race lacks and which hold decides. picture: lines that
    show the race; account: of a failure
    """
    if account is not None:
        print_cause(console, account)
    if isinstance(explanation, Ordered):
        console.print(f"ordered: {explanation.first} comes before {explanation.second}")
        console.print(f"  {explanation.first}")
        _print_path(console, explanation.path)
        console.print("No schedule can turn them round: this is not the race.")
        return
    if isinstance(explanation, Racing):
        _print_race_at_first(console, explanation)
        _print_race(console, explanation, picture)
        return
    if explanation.race is None:
        console.print("No two operations race: what goes wrong, goes wrong in every schedule.")
        print_picture(console, picture)
    else:
        if account is None:  # which names the pair and the wait that comes too late
            _print_race_at_first(console, explanation.race)
        _print_race(console, explanation.race, picture)
    _print_difference(console, explanation)


def _print_race_at_first(console: Console, race: Racing) -> None:
    rows = ", ".join(str(row) for row in race.rows)
    console.print(f"race on {race.buffer}, rows {rows}")
    console.print(f"  {race.first}")
    console.print(f"  {race.second}")
    if race.late_wait is not None:
        console.print(f"A wait that covers it exists, but stands behind it: {race.late_wait}.")


def _print_race(console: Console, race: Racing, picture: Sequence[str]) -> None:
    console.print("no path of edges orders the pair. This one would protect it:")
    console.print(f"  {race.first}")
    _print_path(console, race.would_protect)
    print_picture(console, picture)


def _print_path(console: Console, path: Iterable[PathStep]) -> None:
    for step in path:
        console.print(line(f"  -> {step.to}   ", (f"({step.by})", "dim")))


def _print_difference(console: Console, explanation: Explanation) -> None:
    console.print(f"wrong: {explanation.message}")
    difference = explanation.difference
    if difference is None:
        console.print("no one hold makes it pass: it fails under every schedule tried")
        return
    table = Table("passes with", "fails with", "the hold that decides")
    table.add_row(
        lines(difference.passing or ["no hold"]),
        lines(difference.failing or ["no hold"]),
        difference.hold,
    )
    console.print(table)


def print_campaign(console: Console, campaign: Campaign, state: CampaignState) -> None:
    """What a campaign has looked at, and what it found."""
    total = state.done
    verdicts = ", ".join(f"{count} {name}" for name, count in state.verdicts.items())
    console.print(
        f"{total} scenarios, {state.schedules} schedules in {state.seconds:.0f} s: {verdicts}"
    )
    table = Table("exercised, or set", "scenarios", "times")
    for name, count in state.scenarios_with.items():
        table.add_row(name, str(count), str(state.exercised.get(name, "")))
    console.print(table)
    print_pairs(console, summarise(state.features))
    print_breakages(console, (*campaign.breakages, *campaign.set_aside))
    if campaign.losses:
        text = f"{len(campaign.losses)} workers were lost; others did what they were doing"
        console.print(line((text, "yellow")))
    for loss in campaign.losses[-LOSSES_SHOWN_MAX:]:
        console.print(line((f"  {loss}", "yellow")))
    if campaign.shared is not None and campaign.shared.unsent:
        text = f"{campaign.shared.unsent} findings are not in {campaign.shared.name}"
        console.print(line((text, "yellow")))
    print_selfcheck(console, campaign.selfcheck)
    for worker in sorted(campaign.unchecked):
        text = f"worker {worker} ended without its last canaries"
        console.print(line((text, "yellow")))
    if campaign.known:
        console.print(f"{len(campaign.known)} signatures were known before")
    if not campaign.new:
        console.print("no new finding")
        return
    found = Table("new signature", "scenario", "holds", "requests", "shrink runs", "a user sees it")
    for item in sorted(campaign.new.values(), key=lambda item: item.index):
        found.add_row(
            item.signature,
            str(item.index),
            lines(item.witness.holds or ["none"]),
            str(requests_in(item.witness)),
            str(item.runs),
            _sight_of(item),
        )
    console.print(found)


def _sight_of(found: GeneratedFinding) -> str:
    """Whether a token is wrong in the minimal run, or how far it was looked for such a run."""
    if found.is_seen is None:
        return ""
    return "yes" if found.is_seen else f"no ({many(found.looked, 'schedule')} tried)"


def print_pairs(console: Console, summary: CoverageSummary) -> None:
    """How many pairs of features occurred, if any run was looked at."""
    if summary.runs:
        occurred = summary.possible - len(summary.missing)
        console.print(
            f"{len(summary.rows)} features in {summary.runs} scenarios without fault: "
            f"{occurred} of {summary.possible} possible pairs occurred"
        )


def print_findings(console: Console, found: FindingsObject) -> None:
    """A line for each, the rarest last."""
    console.print(line(f"{found.store}: {found.campaigns} campaigns, {found.scenarios} scenarios"))
    longest = max((len(one.signature) for one in found.findings), default=0)
    table = Table(
        Column("signature", min_width=longest),  # what other commands are given: never broken
        *("status", "first seen in", "hits", "rate (99 %)", "clean run to say fixed"),
    )
    for one in found.findings:
        met = one.findability
        table.add_row(
            one.signature,
            "not counted" if one.status is None else str(one.status),
            f"scenario {one.scenario} of seed {one.seed}",
            "not counted" if met is None else f"{met.hits} of {met.scenarios}",
            "" if met is None else rate_of(met),
            "" if met is None else f"{met.clean_run} scenarios",
        )
    console.print(table if found.findings else "no finding")
    if found.causes:
        _print_causes(console, found.causes)


def rate_of(met: Findability) -> str:
    """A rate with its interval."""
    return f"{met.rate:.2g} ({met.rate_low:.2g} to {met.rate_high:.2g})"


def _print_causes(console: Console, causes: Sequence[SharedCause]) -> None:
    """One line per cause, with the findings that share it."""
    table = Table("cause", "findings", Column("signatures", overflow="fold"))
    for one in causes:
        table.add_row(one.cause, str(len(one.signatures)), lines(one.signatures))
    console.print(table)


def print_origin(console: Console, found: OriginObject) -> None:
    """Which revision brought a finding, or which may have, and what could not be asked."""
    asked = f"{len(found.asked)} of {found.revisions + 1} revisions asked"
    console.print(line((str(found.outcome), ORIGIN_STYLES[found.outcome]), f": {found.signature}"))
    if found.outcome is OriginOutcome.FLAKY:
        text = f"two replays differ in {found.asked[-1].revision.short}: repair the harness first"
        console.print(line(text))
        return
    console.print(line(f"{asked}; last good {found.good.short} {found.good.subject}"))
    for one in found.suspects:
        console.print(line(f"{one.short} {one.subject}"))
    for answer in found.asked:
        if answer.shows is Shows.SKIPPED:
            text = f"skipped {answer.revision.short} {answer.revision.subject}: {answer.why}"
            console.print(line((text, "yellow")))


def print_verified(console: Console, found: VerifyObject) -> None:
    """Whether a finding is fixed, and how sure that is."""
    console.print(line((str(found.outcome), OUTCOME_STYLES[found.outcome]), f": {found.signature}"))
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


def print_operations(console: Console, found: OpsObject, command: str) -> None:
    """One row per kind of operation, per host action and per edge. command: what runs the scenario
    with the holds that are put behind it
    """
    console.print(_operations(found.operations))
    console.print(_points(point.name for point in found.points if is_action(point.name)))
    edges = Table(Column("edge", no_wrap=True), "before", "after", "waits of")
    for edge in found.edges:
        edges.add_row(edge.name, edge.before, edge.after, f"{', '.join(edge.lanes)}: {edge.waits}")
    console.print(edges)
    console.print("useful holds, to be put behind the command:")
    console.print(f"  {command} --hold '...'", soft_wrap=True)
    for hold in found.holds[:HOLDS_SHOWN_MAX]:
        console.print(f"  --hold {quote(hold)}", soft_wrap=True)
    if len(found.holds) > HOLDS_SHOWN_MAX:
        hidden = len(found.holds) - HOLDS_SHOWN_MAX
        console.print(f"  ... and {hidden} more (all of them with --json -)")


def _operations(operations: Sequence[OperationEntry]) -> Table:
    table = Table(
        Column("operation", no_wrap=True),
        "lane",
        "steps",
        "rows",
        Column("writes", overflow="fold"),
        Column("late until the host waits for", overflow="fold"),
    )
    kinds: dict[tuple[str, str], list[OperationEntry]] = {}
    for entry in operations:
        kinds.setdefault((base_of(entry.name), entry.lane), []).append(entry)
    for (base, lane), entries in kinds.items():
        rows = {entry.rows for entry in entries if entry.rows is not None}
        edges = dict.fromkeys(entry.edge or "the end" for entry in entries)
        table.add_row(
            f"{base}@STEP",
            lane,
            in_ranges(entry.step for entry in entries),
            in_ranges(rows),
            _buffers(entry.writes for entry in entries),
            ", ".join(edges),
        )
    return table


def _buffers(names: Iterable[Sequence[str]]) -> str:
    return ", ".join(dict.fromkeys(name for each in names for name in each))


def _points(names: Iterable[str]) -> Table:
    table = Table(Column("host action, a point when it ends", no_wrap=True), "steps")
    steps: dict[str, list[int]] = {}
    for name in names:
        base, _, step = name.partition("@")
        steps.setdefault(base, []).append(int(step))
    for base, reached in steps.items():
        table.add_row(f"{base}@STEP", in_ranges(reached))
    return table
