"""Base beside change: the same plans on both, and what differs.

A changed observation is looked for in the recorded runs, in which nothing is held: what differs
there is no race. Conflicts are the same if their signatures are, which know functions and buffers
and no lines; one is worse than that of the base if its landings do more harm.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import zip_longest

import msgspec

from racegate.history.finding import Finding, FindingKind, Hazard, KernelTotal, Race, Verdict
from racegate.history.outcome import Comparison, RunResult
from racegate.history.schedule import place_of
from racegate.interpose.outcome import Ending, Observation
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.text import many
from racegate.targets.common.judge import ReleaseVerdict
from racegate.targets.common.search import WRONG_SHOWN
from racegate.targets.common.wire import KEPT

# Of what landings do to a conflict, from harmless to harmful.
_HARM = (Verdict.BENIGN, Verdict.CONFLICT, Verdict.DIVERGENT)
_CUT = (Ending.LOST, Ending.TIMED_OUT, Ending.INTERRUPTED)  # of these runs nothing is known
_ROWS = "rows"  # the field of an observation that names the request of each row
_ERROR = "error"  # the place of one that differs
_UNTOLD = "lines that may meet"  # likewise
_SHOWN_MAX = 60
ResultPair = tuple[RunResult, RunResult]  # of the base and of the change, in one scenario


class ComparedRun(StrictStruct, frozen=True, kw_only=True):
    """A scenario or a program in one of two versions, as they are compared.

    result: what its judge said
    ending, exit_code, message: of the run in which nothing was held
    seen: what that observed, in order, of a scenario with its step; delivered: tokens by request
    untold: kernels with lines that may meet, by how they are compiled: no race that is shown, and
        no order that a change may bring unseen
    """

    result: RunResult
    ending: Ending
    exit_code: int = 0
    message: str = ""
    seen: tuple[Observation, ...] = ()
    delivered: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    untold: tuple[str, ...] = ()


def compared_run(judged: ReleaseVerdict, result: RunResult) -> ComparedRun:
    """A scenario on a release."""
    run = judged.base
    return ComparedRun(
        result=result,
        ending=run.ending,
        message=run.message,
        seen=run.inner,
        delivered=run.delivered,
        untold=untold_of(run.kernels),
    )


def untold_of(kernels: Sequence[KernelTotal]) -> tuple[str, ...]:
    """Kernels with lines of which it cannot be told whether they meet, and how many."""
    return tuple(sorted(f"{one.name}: {many(one.untold, 'pair')}" for one in kernels if one.untold))


def compare(
    base: ComparedRun,
    change: ComparedRun,
    *,
    unstable: AbstractSet[str] = frozenset(),
    others: Sequence[ResultPair] = (),
) -> Comparison:
    """A change beside its base. unstable: names of observations that differ from run to run of the
    same version, which say nothing; others: both in other scenarios: memory that is freed too early
    in one is so in all, but handed out again in some
    """
    title, result = base.result.target, change.result
    if base.result.refused and base.result.refused == result.refused:
        return Comparison(base=title)  # neither can run it
    for one, its in ((base, "base"), (change, "change")):
        is_cut = one.ending in _CUT and base.ending is not change.ending
        if one.result.refused or one.result.is_lost or is_cut:
            why = one.result.refused or one.message or "its run did not come to its end"
            return Comparison(base=title, unmet=(f"the {its} was not judged: {why}",))
    before, after = _judged_in(base.result), _judged_in(result)
    freed, freed_too = (_freed_early([pair[side] for pair in others]) for side in (0, 1))
    worse = [one for one in after if _is_worse(one, [*before, *freed])]
    changed = _changed(base, change, unstable)
    unmet = [text for text in result.unmet if text not in base.result.unmet]
    if unstable:
        unmet.append(f"not compared, because it differs from run to run: {_named(unstable)}")
    return Comparison(
        base=title,
        changed=changed,
        new=tuple(worse),
        repaired=tuple(one.signature for one in before if _is_worse(one, [*after, *freed_too])),
        known=len(after) - len(worse),
        unmet=tuple(unmet),
        failed=change.message if changed is None and _is_failed(base, change) else "",
    )


def _is_failed(*both: ComparedRun) -> bool:
    return all(one.ending is Ending.FAILED for one in both)


def _named(names: AbstractSet[str]) -> str:
    return ", ".join(sorted(names))


def _judged_in(result: RunResult) -> list[Finding]:
    """What is compared by its signature: what is wrong with nothing held is a changed value."""
    return [one for one in result.findings if one.signature != WRONG_SHOWN]


def _freed_early(results: Sequence[RunResult]) -> list[Finding]:
    found = (one for result in results for one in _judged_in(result))
    return [one for one in found if one.race is not None and one.race.hazard is Hazard.REUSE]


def _is_worse(finding: Finding, others: Sequence[Finding]) -> bool:
    """Whether others have no such finding, or only one whose landings do less harm."""
    same = [one for one in others if _is_same(one, finding)]
    return not same or _harm(finding) > max(map(_harm, same))


def _is_same(finding: Finding, other: Finding) -> bool:
    """Whether two findings are one, whatever their landings do. Memory that is freed too early is
    one danger, whoever gets it: that is up to the allocator, and to whatever else is allocated. Who
    may still use it decides, and who had asked for it, where that is known of both.
    """
    race, known = finding.race, other.race
    if race is None or known is None:
        return race is known and finding.signature == other.signature
    if {race.hazard, known.hazard} != {Hazard.REUSE}:
        return race.signature == known.signature
    owners = {_owner(one) for one in (race, known) if one.allocated}
    return place_of(race.first.label) == place_of(known.first.label) and len(owners) < 2


def _owner(race: Race) -> tuple[str, str]:
    """The file and the function that had asked for its memory, in whichever folder they are."""
    file, _, function = race.allocated[0]
    return file.rpartition("/")[2], function


def _harm(finding: Finding) -> int:
    """A race for which nobody searched is as one whose landings were not all tried."""
    return _HARM.index(finding.verdict or Verdict.CONFLICT)


class ValueChange(msgspec.Struct, frozen=True, kw_only=True):
    """Two values that are not the same. place: the boundary, and the field of it

    step, row, request: where it stands, as far as that is known; old: of the base; new: of the
        change; behind: what else is to be said, in words
    digest: of all that the change observes otherwise, so that another change is not taken for it
    """

    place: str
    step: int | None = None
    row: int | None = None
    request: str | None = None
    old: object = None
    new: object = None
    behind: str = ""
    digest: str = ""

    @property
    def finding(self) -> Finding:
        """As a finding, in words."""
        known = {"step": self.step, "request": self.request, "row": self.row}
        where = ", ".join(f"{key} {value}" for key, value in known.items() if value is not None)
        values = f"{self.place} is {_short(self.new)}, in the base {_short(self.old)}"
        return Finding(
            kind=FindingKind.CHANGE,
            signature=f"change/{self.place}/{self.digest}",
            message=f"{where}: {values}{self.behind}" if where else f"{values}{self.behind}",
            step=self.step,
            request=self.request,
            field=self.place,
            expected=self.old,
            actual=self.new,
        )


def _changed(base: ComparedRun, change: ComparedRun, unstable: AbstractSet[str]) -> Finding | None:
    """The first value that differs: of what was observed, else how the run ended, else what was
    delivered. A run that fails behind its last observation has delivered nothing.
    """
    pairs = zip_longest(base.seen, change.seen)
    differ = [pair for pair in pairs if _is_other(*pair) and not _names(pair) <= unstable]
    names = dict.fromkeys([*base.delivered, *change.delivered])
    tokens = [name for name in names if base.delivered.get(name) != change.delivered.get(name)]
    if differ:
        later = f"; {many(len(differ) - 1, 'later observation')} also" if differ[1:] else ""
        why = f"; {change.message}" if change.message else ""
        first = _difference(*differ[0], behind=f"{why}{later}")
    elif (change.ending, change.exit_code) != (base.ending, base.exit_code):
        first = _end(base, change)
    elif _is_failed(base, change) and _error_in(base) != _error_in(change):
        first = ValueChange(place=_ERROR, old=base.message, new=change.message)
    elif tokens:
        old, new = (one.delivered.get(tokens[0]) for one in (base, change))
        first = ValueChange(place="delivered tokens", request=tokens[0], old=old, new=new)
    elif base.untold != change.untold:
        first = ValueChange(place=_UNTOLD, old=list(base.untold), new=list(change.untold))
    else:
        return None
    known = [(mine.name, mine.digest) if mine is not None else None for _, mine in differ]
    other = {name: change.delivered.get(name) for name in tokens}
    own: tuple[str, ...] = (_error_in(change),) if first.place == _ERROR else ()
    own += change.untold if first.place == _UNTOLD else ()
    decides = (known, change.ending, change.exit_code, other, *own)
    digest = hashlib.sha256(msgspec.json.encode(decides)).hexdigest()[:12]
    return msgspec.structs.replace(first, digest=digest).finding


def _end(base: ComparedRun, change: ComparedRun) -> ValueChange:
    """How the two ended, if not alike."""
    behind = f"; {change.message}" if change.message else ""
    if change.ending is not base.ending:
        return ValueChange(place="ending", old=base.ending, new=change.ending, behind=behind)
    codes = (base.exit_code, change.exit_code)
    return ValueChange(place="exit code", old=codes[0], new=codes[1], behind=behind)


def _error_in(run: ComparedRun) -> str:
    """The type of the error that a run ended with, if its message begins with one. What is behind
    it may hold addresses and paths.
    """
    kind, colon, _ = run.message.partition(":")
    return kind if colon and kind.isidentifier() else ""


def _is_other(its: Observation | None, mine: Observation | None) -> bool:
    if its is None or mine is None or its.name != mine.name:
        return True
    if its.digest == mine.digest:
        return False
    before, after = _compared(its, mine)
    return before != after or not _is_kept(its)


def _names(pair: tuple[Observation | None, Observation | None]) -> set[str]:
    return {one.name for one in pair if one is not None}


def _difference(its: Observation | None, mine: Observation | None, *, behind: str) -> ValueChange:
    step, boundary = _place(its or mine)
    if its is None or mine is None or its.name != mine.name:
        old, new = (None if one is None else one.name for one in (its, mine))
        return ValueChange(place=boundary, step=step, old=old, new=new, behind=behind)
    before, after = _compared(its, mine)
    if before == after:
        text = f", as far as it is shown{behind}"
        return ValueChange(place=boundary, step=step, old=before, new=after, behind=text)
    if not (isinstance(before, dict) and isinstance(after, dict)):
        found = _inside(before, after, None)
    else:
        field = _differing(before, after)
        found = _inside(_entry(before, field), _entry(after, field), before.get(_ROWS))
        boundary = f"{boundary}.{field}"
    place = f"{boundary}{found.place}"
    return msgspec.structs.replace(found, place=place, step=step, behind=behind)


def _compared(its: Observation, mine: Observation) -> tuple[object, object]:
    """Their values; of what is kept by field, those that both have: a field that one version alone
    has is no changed value.
    """
    before, after = _values(its), _values(mine)
    if _is_kept(its) and isinstance(before, dict) and isinstance(after, dict):
        both = [key for key in before if key in after]
        return {key: before[key] for key in both}, {key: after[key] for key in both}
    return before, after


def _is_kept(one: Observation) -> bool:
    return _place(one)[1].startswith(f"{KEPT} ")


def _values(one: Observation) -> object:
    """What was observed, or its text where that is all there is, or was cut off."""
    try:
        return msgspec.json.decode(one.preview)
    except msgspec.DecodeError:
        return one.preview


def _place(one: Observation | None) -> tuple[int | None, str]:
    """The step, where there is one, and the boundary of an observation."""
    assert one is not None
    found = re.fullmatch(r"step (\d+) (.+)", one.name, re.DOTALL)
    return (None, one.name) if found is None else (int(found[1]), found[2])


def _inside(old: object, new: object, rows: object) -> ValueChange:
    """The first entry in which two values of a field differ: of a list, or by request."""
    if isinstance(old, dict) and isinstance(new, dict):
        key = _differing(old, new)
        return ValueChange(place="", request=str(key), old=_entry(old, key), new=_entry(new, key))
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        at = next(index for index, value in enumerate(old) if value != new[index])
        if isinstance(rows, list) and len(rows) == len(old):
            return ValueChange(place="", row=at, request=str(rows[at]), old=old[at], new=new[at])
        found = _inside(old[at], new[at], None)
        return msgspec.structs.replace(found, place=f"[{at}]{found.place}")
    return ValueChange(place="", old=old, new=new)


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> str:
    """The first key whose entries differ. None is another entry than none at all."""
    return next(key for key in (*old, *new) if old.get(key, ...) != new.get(key, ...))


def _entry(values: Mapping[str, object], key: str) -> object:
    """In words where it is None, which stands for an entry that is absent."""
    return "None" if values.get(key, ...) is None else values.get(key)


def _short(value: object) -> str:
    text = "absent" if value is None else str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
