"""Conflicts of a program, and what holds change, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest

from racegate.history.finding import Race, Side, Stack, Verdict, by_cause, causes_of
from racegate.history.schedule import texts_of
from racegate.interpose.gpus import VIRTUAL_GPU
from racegate.interpose.outcome import Ending, Observation, Outcome
from racegate.interpose.ranks.group.findings import RankFinding
from racegate.interpose.ranks.group.kinds import rank_name
from racegate.targets.common.landings import LandingRun
from racegate.targets.common.search import VERDICTS
from racegate.targets.program.judge import ProgramRace, ProgramVerdict

_STACK_MAX = 4
COMMAND = "racegate torch run"


def render_findings(findings: Iterable[Race]) -> str:
    """Findings that no search was made for."""
    return "\n".join(
        line
        for index, found in enumerate(by_cause(tuple(findings)), 1)
        for line in cause_lines(index, found, {}, "")
    )


def cause_lines(
    index: int, findings: Sequence[Race], judged: Mapping[str, ProgramRace], command: str
) -> list[str]:
    """The conflicts that lack one edge: one of them in full, one that a run shows if there is one,
    and a line for each of the others. judged: by signature, what a search came to
    """
    shown = [one for one in findings if (found := judged.get(one.signature)) and found.landing]
    told = (shown or findings)[0]
    lines = finding_lines(index, told, judged.get(told.signature), command)
    others = [one for one in findings if one is not told]
    return [*lines[:-1], *(_also(one, judged.get(one.signature)) for one in others), ""]


def _also(finding: Race, judged: ProgramRace | None) -> str:
    first, second = finding.first, finding.second
    return (
        f"  also    {_verdict(judged)} [{finding.signature}] {finding.buffer}: "
        f"{first.operation} at {first.place} and {second.operation} at {second.place}"
    )


def _verdict(judged: ProgramRace | None) -> Verdict:
    return Verdict.CONFLICT if judged is None else VERDICTS[judged.effect]


def finding_lines(index: int, finding: Race, judged: ProgramRace | None, command: str) -> list[str]:
    """A conflict: its two places, what would order them, what a search came to.

    index: its number; command: the script with its arguments
    """
    times = f", {finding.count} times" if finding.count > 1 else ""
    verdict = _verdict(judged)
    landing = None if judged is None else judged.landing
    return [
        f"{verdict} {index} [{finding.signature}] {finding.buffer}: {finding.nbytes} bytes{times}",
        *_side("first ", finding.first),
        *_side("second", finding.second),
        f"  edge    {finding.missing}",
        *([] if landing is None else changes_of(landing)),
        *([] if landing is None else [f"  replay  {replay_of(landing, command)}"]),
        "",
    ]


def changes_of(landing: LandingRun[Outcome]) -> list[str]:
    """How a run under holds ended, if not as the one without, and the first value that differs."""
    ended = ending_of(landing)
    lines = [f"  ended   {ended}"] if ended else []
    return lines + difference_in(landing)


def difference_in(landing: LandingRun[Outcome]) -> list[str]:
    """The first value that differs in a run under holds."""
    return difference(landing.base.observations, landing.what.observations, "with the hold")


def ending_of(landing: LandingRun[Outcome]) -> str:
    """How a run under holds ended, in words; empty if it ended as the one without them."""
    base, held = landing.base, landing.what
    is_same = (held.ending, held.exit_code) == (base.ending, base.exit_code)
    return "" if is_same else held.message or f"{held.ending}: {held.exit_code}"


def replay_of(landing: LandingRun[Outcome], command: str) -> str:
    """What shows a finding again. command: as of `finding_lines`"""
    holds = " ".join(f"--hold '{text}'" for text in texts_of(landing.holds))
    polls = f"--not-ready {landing.polls} " if landing.polls else ""
    return f"{COMMAND} {polls}{holds} {command}"


def difference(
    expected: tuple[Observation, ...], actual: tuple[Observation, ...], how: str
) -> list[str]:
    """The first observation that differs."""
    for item, other in zip_longest(expected, actual):
        if item is None:
            return [f"  value   {shown(other)} {how} alone"]
        if other is None or other != item:
            seen = other.preview if other is not None else "nothing"
            return [f"  value   {shown(item)}; {how} {seen}"]
    return []


def shown(item: Observation) -> str:
    """An observed value."""
    return f"{item.name} = {item.preview}"


def _side(name: str, side: Side) -> list[str]:
    verb = "writes" if side.is_write else "reads"
    head = f"  {name}  {side.operation} {verb} it on {side.lane}"
    return [head, *_frames(side.frames)]


def _frames(stack: Stack) -> list[str]:
    return [f"            {file}:{line} in {code}" for file, line, code in stack[:_STACK_MAX]]


def rank_lines(index: int, found: RankFinding) -> list[str]:
    """What ranks do wrong together: what each of them does, and where. index: its number"""
    lines = [f"{found.kind.name} {index} [{found.signature}] {found.title}"]
    for one in found.places:
        lines += [f"  {rank_name(one.rank)}  {one.what}", *_frames(one.stack)]
    return [*lines, *([f"  {found.hint}"] if found.hint else []), ""]


def not_covered(verdicts: ProgramVerdict) -> list[str]:
    """What no run of these says anything about."""
    lines = [f"  {count} x {text}" for text, count in sorted(verdicts.shown.not_seen.items())]
    polled = verdicts.polled
    if polled is not None and polled.ending in (Ending.TIMED_OUT, Ending.NOT_MODELLED):
        is_late = polled.ending is Ending.TIMED_OUT
        why = "it did not end" if is_late else f"not modelled: {polled.message}"
        lines.append(f'  a run in which queries are first answered "not ready": {why}')
    return ["not covered by this verdict:", *lines] if lines else []


def closing(verdicts: ProgramVerdict) -> str:
    """The last line: how many conflicts there are, or why nothing was judged."""
    outcome = verdicts.shown
    if outcome.ending is Ending.NOT_MODELLED:
        return f"racegate: not modelled: {outcome.message}"
    if outcome.ending is Ending.STUCK:
        found = f"{_counted(verdicts)} until then; " if verdicts.races else ""
        return f"racegate: {found}{_ranks(outcome)}: {outcome.message}"
    if outcome.ending is Ending.LOST:
        return f"racegate: {outcome.message}"
    if outcome.ending is Ending.TIMED_OUT:
        found = f"{_counted(verdicts)} until then; " if verdicts.races else ""
        return f"racegate: {found}{outcome.message}"
    text = f"racegate: {_counted(verdicts)} in {outcome.events} events ({_made_with(outcome)})"
    if outcome.ending is Ending.FAILED:
        why = outcome.message or f"it ended with exit code {outcome.exit_code}"
        return f"{text}; the script failed by itself: {why}"
    if outcome.ending is Ending.INTERRUPTED:
        return f"{text}, as far as it came: interrupted"
    return text


def _made_with(outcome: Outcome) -> str:
    """Which torch, how many compiled regions, and which GPU if the device has the name of one."""
    regions, gpu = outcome.compiled_regions, outcome.gpu
    compiled = f", {regions} compiled region{'s' if regions > 1 else ''}" if regions else ""
    named = f"; {gpu.text}" if gpu is not None and gpu.name != VIRTUAL_GPU.name else ""
    ranks = f", {_ranks(outcome)}" if outcome.ranks else ""
    return f"torch {outcome.torch_version}{ranks}{compiled}{named}"


def _ranks(outcome: Outcome) -> str:
    return f"{outcome.ranks} rank{'s' if outcome.ranks > 1 else ''}"


def _counted(verdicts: ProgramVerdict) -> str:
    count = len(verdicts.races)
    found = f"{count} conflict{'s' if count != 1 else ''}" if count else "no conflict"
    kinds = Counter(one.kind for one in verdicts.disagreements)
    found = ", ".join([found, *(f"{many} {kind}" for kind, many in kinds.items())])
    edges = len(causes_of(verdicts.races))
    if edges < count:
        found += f" of {edges} missing edge{'s' if edges != 1 else ''}"
    hidden = len({s.signature for s in verdicts.suppressed})
    return f"{found}, {hidden} of them suppressed," if hidden else found
