"""What a red gate tells first: one block for each cause, whatever the number of scenarios that show
it, and a last line that names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from rich.console import Console
from rich.table import Table

from racegate.history.finding import Benign, Finding, FindingKind, Race, Side, Verdict
from racegate.history.outcome import RunResult, SharedFinding, shared_findings
from racegate.report.cause.account import Account
from racegate.scenario.untrusted.console import line, lines
from racegate.scenario.untrusted.text import many
from racegate.targets.program.repair import frame_text

if TYPE_CHECKING:  # or a single run would import the search
    from racegate.check.repro.search import FailureSighting

BLOCKS_MAX = 8
NAMES_MAX = 3
BUFFERS_MAX = 3


class ToldCause(NamedTuple):
    """A cause as a gate tells it. sentence: what it means; facts: name and text of each

    replay: the command that shows it; files: what was written beside
    """

    shared: SharedFinding
    verdict: Verdict
    sentence: str
    facts: tuple[tuple[str, str], ...]
    replay: str
    files: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """What it is called: beside a base by how it differs."""
        run, finding = self.shared.seen[0]
        if run.comparison is None:
            return str(self.verdict)
        return compared_word(finding)


def compared_word(finding: Finding) -> str:
    """What a finding is called that the base has not."""
    if finding.kind is FindingKind.CHANGE:
        return "CHANGED"
    return f"NEW {finding.verdict or finding.kind}"


def told_plainly(shared: SharedFinding) -> ToldCause:
    """As the finding itself says it."""
    run, finding = shared.seen[0]
    facts = [("hold", hold) for hold in finding.holds or run.schedule]
    if finding.race is not None:
        facts += [("edge", finding.race.missing), ("lacks it", lacking(finding.race))]
    facts += also_facts([one for one in shared.findings[1:] if one.kind is not FindingKind.CHANGE])
    return ToldCause(
        shared=shared,
        verdict=run.verdict if finding.verdict is None else finding.verdict,
        sentence=finding.message,
        facts=tuple(facts),
        replay=finding.replay,
    )


def lacking(race: Race) -> str:
    """The function that would have to wait, and the one whose work it would wait for, with lines of
    the source.
    """
    second, first = (_function_at(side) for side in (race.second, race.first))
    return f"{second}, for {first}"


def _function_at(side: Side) -> str:
    return frame_text(side.stack[0]) if side.stack else side.operation


def also_facts(others: Sequence[Finding]) -> list[tuple[str, str]]:
    """What else lacks the edge, in a line."""
    buffers = dict.fromkeys(one.buffer or one.signature for one in others)
    if not buffers:
        return []
    shown = ", ".join([*buffers][:BUFFERS_MAX])
    hidden = f" and {len(buffers) - BUFFERS_MAX} more" if len(buffers) > BUFFERS_MAX else ""
    return [("also", f"{many(len(others), 'more conflict')} of this edge: {shown}{hidden}")]


def told_findings(results: Sequence[RunResult], *, benign: Benign) -> tuple[SharedFinding, ...]:
    """What a gate tells, each signature once: of a change beside its base only what differs."""
    return shared_findings([_beside(one) for one in results if not one.refused], benign=benign)


def _beside(result: RunResult) -> RunResult:
    """A result that has no other findings than its base does not have. It counts as they do."""
    beside = result.comparison
    if beside is None:
        return result
    told = msgspec.structs.replace(
        beside,
        changed=None if beside.changed is None else _decided(beside.changed),
        new=tuple(map(_decided, beside.new)),
    )
    return msgspec.structs.replace(
        result,
        findings=told.findings,
        verdict=Verdict.CONFLICT if told.findings else Verdict.PROVED,
        comparison=told,
    )


def _decided(finding: Finding) -> Finding:
    return msgspec.structs.replace(finding, verdict=finding.verdict or Verdict.DIVERGENT)


def told_of_account(
    shared: SharedFinding, account: Account, holds: Sequence[str], sight: str
) -> ToldCause:
    """As the account of its run has it. sight: what came of looking for one that a user sees"""
    first, second = account.first, account.second
    facts = [("hold", hold) for hold in holds]
    if first is not None and second is not None:
        facts.append(("pair", f"{first.name} on {first.lane}, {second.name} on {second.lane}"))
    facts.append(("edge", account.to_add))
    facts += [("further", sight)] if sight else []
    return ToldCause(
        shared=shared,
        verdict=shared.seen[0][0].verdict,
        sentence=account.impact,
        facts=tuple(facts),
        replay=account.replay,
    )


def sight_text(sight: FailureSighting | None) -> str:
    """That no run was found in which a user sees what is wrong, and how far it was looked; empty if
    one was, or nobody looked.
    """
    if sight is None or sight.result is not None:
        return ""
    tried = many(sight.schedules, "schedule")
    if sight.is_complete:
        tried = f"{tried}, one of every class,"
    return f"no run in which a token is wrong was found ({tried} of this scenario run)"


def print_causes(console: Console, causes: Sequence[ToldCause], styles: dict[Verdict, str]) -> None:
    """A block each; signatures and commands are never cut, nor broken into lines."""
    for number, cause in enumerate(causes[:BLOCKS_MAX], start=1):
        head = (f"{number} {cause.word}", styles[cause.verdict])
        console.print(line(head, f" {cause.shared.signature}"), soft_wrap=True)
        facts = Table.grid(padding=(0, 2))
        facts.add_row("", lines(cause.sentence.split("\n")))
        console.print(facts)
        pairs = Table.grid(padding=(0, 2))
        for name, text in (*cause.facts, ("seen in", _named(cause.shared.scenarios))):
            pairs.add_row("", line((name, "dim")), text)
        console.print(pairs)
        for command in filter(None, (cause.replay, *cause.files)):
            console.print(f"  {command}", soft_wrap=True, highlight=False)
        console.print()
    hidden = len(causes) - BLOCKS_MAX
    if hidden > 0:
        console.print(f"... and {many(hidden, 'more cause')} (-v has all)")


def _named(names: Sequence[str]) -> str:
    hidden = len(names) - NAMES_MAX
    more = f" and {hidden} more" if hidden > 0 else ""
    return f"{many(len(names), 'scenario')}: {', '.join(names[:NAMES_MAX])}{more}"


def last_line(causes: Sequence[ToldCause], *, scenarios: int) -> str:
    """How many causes, in how many scenarios, and which."""
    failing = {name for cause in causes for name in cause.shared.scenarios}
    names = ", ".join(cause.shared.signature for cause in causes[:BLOCKS_MAX])
    more = ", ..." if len(causes) > BLOCKS_MAX else ""
    count = f"{many(len(causes), 'cause')} in {len(failing)} of {many(scenarios, 'scenario')}"
    return f"{count}: {names}{more}"
