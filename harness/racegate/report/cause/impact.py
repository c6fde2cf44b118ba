"""Impact: what a wrong value means for the user of a request, in a sentence. Harm is claimed from a
value that differs from the reference, or from a wrong token; what only might do harm says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from racegate.history.edge import Edge
from racegate.history.finding import Finding, FindingKind
from racegate.report.cause.pair import Pair

_FROM_HERE = "its text is wrong from here on"
_UNSEEN = "No token that was delivered in this run is wrong."
# By observed field: what the request does with the wrong value.
_BY_FIELD = {
    "computed": "is computed as if it were at token {actual}, not {expected}",
    "seq_lens": "attends over {actual} tokens of its sequence instead of {expected}",
    "positions": "is computed at position {actual} instead of {expected}",
    "query_start": "is computed on tokens of another row",
    "slot_mapping": "keeps its attention keys in cache slot {actual} instead of {expected}, "
    "over those of whoever has that slot",
    "block_table": "attends over cache blocks that are not its own",
    "state_table": "goes on from recurrent states that are not its own",
    "input_ids": "is fed token {actual} where {expected} comes next",
    "conv": "goes on from a convolution window{layer} that is not its own",
    "state": "goes on from a recurrent state{layer} that is not its own",
    "checkpoint": "leaves a saved recurrent state{layer} that is not its own: what goes on from it "
    "forgets the prompt",
    "kv": "leaves attention keys{layer} that are not its own",
    "draft_kv": "leaves keys of the drafter that are not its own",
    "loaded_kv": "goes on from a saved prefix{layer} that is not its own",
    "loaded_draft_kv": "drafts from a saved prefix that is not its own",
    "fresh_dirty": "is given cache blocks that were not zeroed",
    "sampled": "is given token {actual} where {expected} is right",
    "next_token": "goes on with token {actual} where {expected} is right",
    "valid_count": "is counted {actual} accepted tokens instead of {expected}",
    "drafts": "is given draft {actual} where {expected} is right",
    "backup_token": "falls back on token {actual} instead of {expected}",
    "delivered": "is delivered {actual} instead of {expected}",
    "placeholders": "is thought to have {actual} tokens in flight instead of {expected}",
    "plan": "is scheduled for other tokens than it has",
    "rows": "sits in another row than it should",
}
# What only costs time, or shows later: not said to be wrong from here on.
_SILENT_SO_FAR = frozenset({"drafts", "checkpoint", "placeholders", "delivered", "fresh_dirty"})

_UNREAD = "No value that was compared is wrong so far: it shows when a request goes on from it."


def impact_of(findings: Sequence[Finding], pair: Pair | None, edge: Edge | None) -> str:
    """What would happen to a user. edge: the one that is missing"""
    wrong = [finding for finding in findings if finding.kind is not FindingKind.CONFLICT]
    if not wrong:
        return _under_another_timing(pair, edge)
    stops = (FindingKind.DEADLOCK, FindingKind.CRASH, FindingKind.FOOTPRINT)
    stopped = next((found for kind in stops if (found := _first(wrong, kind))), None)
    seen = _first(wrong, FindingKind.DIVERGENCE)
    owned = _first(wrong, FindingKind.OWNERSHIP)
    loss = _first(wrong, FindingKind.LOSS)
    if (mismatch := _first(wrong, FindingKind.MISMATCH)) is not None:
        said = f"{mismatch.message[0].upper()}{mismatch.message[1:]}."
    elif seen is None and loss is None and (page := _first(wrong, FindingKind.PAGE)) is not None:
        said = f"{page.message}. {_UNREAD}"
    elif seen is not None:
        said = _value(seen, owned, is_lost=loss is not None)
    else:
        said = _ended(wrong) if owned is None else _owned(owned, is_lost=loss is not None)
    if loss is not None:
        said += f" The user sees it: {loss.message}."
    elif seen is not None:
        said += f" {_UNSEEN}"
    if stopped is not None:
        said += f" In the end {_lower(stopped.message)}."
    return said.strip()


def _under_another_timing(pair: Pair | None, edge: Edge | None) -> str:
    if edge is not None:
        return f"Nothing went wrong in this run; under another timing {edge.reason}."
    if pair is None:
        return "Nothing went wrong in this run."
    return (
        f"Nothing went wrong in this run; under another timing {pair.second.name} comes before "
        f"{pair.first.name}, and one of them meets the wrong value."
    )


def _owned(owned: Finding, *, is_lost: bool) -> str:
    """A value of another row, where none that was compared differs from the reference."""
    said = f"{_request(owned)} is served with {_whose(owned)} from {owned.buffer}"
    if is_lost:
        return f"{said}."
    return f"{said}, which is equal to its own by luck: no value that was compared is wrong."


def _value(seen: Finding, owned: Finding | None, *, is_lost: bool) -> str:
    """What the first wrong value does, with whose value it is."""
    field = (seen.field or "").partition(".")[2]
    if field == "accepted":
        return _accepted(seen, owned, is_lost=is_lost)
    how = _BY_FIELD.get(field)
    if how is None:
        return f"{_request(seen)}: {seen.message}."
    layer = "" if seen.layer is None else f" of layer {seen.layer}"
    said = how.format(actual=_shown(seen.actual), expected=_shown(seen.expected), layer=layer)
    by = "" if owned is None else f", by {_whose(owned)} in {owned.buffer}"
    end = f": {_FROM_HERE}" if is_lost and field not in _SILENT_SO_FAR else ""
    return f"{_request(seen)} {said}{by}{end}."


def _accepted(seen: Finding, owned: Finding | None, *, is_lost: bool) -> str:
    """A count selects the recurrent state that a request goes on from: column count - 1."""
    mine = owned if owned is not None and owned.request == seen.request else None
    with_it = "a wrong accepted count" if mine is None else _whose(mine, "accepted count")
    expected, actual = seen.expected, seen.actual
    end = f", and {_FROM_HERE}" if is_lost else ""
    if not isinstance(expected, int) or not isinstance(actual, int):
        return f"{_request(seen)} goes on with {with_it}{end}."
    if mine is not None and mine.actual is None:
        columns = "whatever column that names"
    elif actual < 1:
        columns = f"no column at all (the count is {actual})"
    else:
        columns = f"column {actual - 1}"
    return (
        f"{_request(seen)} goes on with {with_it}: it reads its recurrent state from {columns} "
        f"instead of column {expected - 1}{end}."
    )


def _whose(owned: Finding, what: str = "value") -> str:
    if not isinstance(owned.actual, list):
        return f"{'an' if what[0] in 'aeio' else 'a'} {what} that nobody wrote"
    request, step = owned.actual
    if request == owned.request:
        return f"its own {what} of step {step}"
    return f"the {what} of request {request}"


def _ended(wrong: Sequence[Finding]) -> str:
    """Where no value was compared: the law that broke, if one did."""
    broken = _first(wrong, FindingKind.INVARIANT)
    return "" if broken is None else f"{_request(broken)}: {broken.message}."


def _first(findings: Sequence[Finding], kind: FindingKind) -> Finding | None:
    return next((finding for finding in findings if finding.kind is kind), None)


def _request(finding: Finding) -> str:
    return "The batch" if finding.request is None else f"Request {finding.request}"


def _shown(value: object) -> str:
    """A value in a sentence: a list as its end, which is where it differs."""
    if isinstance(value, list | tuple):
        plural = "s" if len(value) > 1 else ""
        return f"{len(value)} token{plural} ending in {value[-1]}" if value else "no token"
    return str(value)


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
