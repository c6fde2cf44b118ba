"""What forward passes are given, beside what the scheduler's choice and the delivered tokens make
true of it: also that each slot a request reads holds keys and values of its own tokens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from racegate.targets.common.inside.watch import Seen, Values
from racegate.targets.common.wire import Wrong, WrongValue

BATCH, ROWS, VERIFIED = "batch", "rows", "verified"  # observations of one pass, in this order
ACCEPTED = "accepted counts"  # of those verified
UNTRUE_MAX = 20  # what follows from the first wrong value says little
Prefix = tuple[int, ...]  # tokens up to the one that a slot is of


class RequestPass(NamedTuple):
    """What one request has of a forward pass. at: its place in the batch; start, end: of its tokens
    that are computed; drafts: how many of these, at the end, are drafts; kept: the end of those
    that stay, None where nobody knows how many drafts are accepted
    """

    step: int
    name: str
    at: int
    row: int
    start: int
    end: int
    drafts: int
    kept: int | None


class PassTruth:
    """Compares the passes of one run, in their order. known: tokens by request, with its prompt

    untrue: what is not what it should be; compared: how many values of each field were
    counters: slots that were written again, for another token, and what became of drafts
    """

    def __init__(self, known: Mapping[str, Sequence[int]]) -> None:
        self._known = {name: tuple(tokens) for name, tokens in known.items()}
        self._ends: dict[str, int | None] = {}  # computed tokens, by request, if they are known
        self._verified: list[RequestPass] = []  # of the last pass that verified drafts
        self._slots: dict[int, Prefix] = {}
        self.untrue: list[Wrong] = []
        self.compared: Counter[str] = Counter()
        self.counters = Counter(slot_reuses=0)

    def read(self, seen: Iterable[Seen]) -> None:
        """All observations of a run."""
        given: Values = {}
        for step, name, values in seen:
            if name == BATCH:
                given = values
            elif name == ROWS:
                self._pass(step, given, values)
            elif name == VERIFIED:
                self._accepted(_listed(values[ACCEPTED]))

    def _pass(self, step: int, given: Values, rows: Values) -> None:
        names, counts = _listed(rows["requests"]), _listed(rows["counts"])
        if len(names) != len(_listed(given["req_pool_indices"])):
            return  # a pass with rows that nobody has is seen in its tokens
        bounds = [0, *accumulate(counts)]
        self._verified = []
        for at, (name, count) in enumerate(zip(names, counts, strict=True)):
            row, start = _listed(given["req_pool_indices"])[at], self._start(rows, at, name)
            part = slice(bounds[at], bounds[at + 1])
            tokens, slots = (_listed(given[key])[part] for key in ("input_ids", "out_cache_loc"))
            if start is None:  # as many drafts were accepted as the request had no use for
                for slot in slots:
                    self._slots.pop(slot, None)
                continue
            end, drafts = start + count, _number(rows["drafts"])
            one = RequestPass(step, name, at, row, start, end, drafts, end)
            if drafts:
                one = one._replace(kept=self._kept(one, tokens))
                self._verified.append(one)
            self._compare_pass(one, tokens, given, part)
            self._written(one, _listed(rows["table"])[at], slots)
            self._ends[name] = one.kept

    def _compare_pass(
        self, one: RequestPass, tokens: Sequence[int], given: Values, part: slice
    ) -> None:
        """What kernels are given of it; what a draft should be nobody knows."""
        places, known = range(one.start, one.end), one.end - one.start - one.drafts
        true = [self._token(one.name, place) for place in places]
        length = one.start if one.drafts else one.end
        self._compare(one, "tokens", tokens[:known], true[:known])
        self._compare(one, "positions", _listed(given["positions"])[part], places)
        self._compare(one, "length", _listed(given["seq_lens"])[one.at : one.at + 1], [length])

    def _kept(self, one: RequestPass, tokens: Sequence[int]) -> int | None:
        """Where the drafts end that are accepted: each that is what was delivered there. None if
        they go on behind that.
        """
        for place, token in zip(range(one.start, one.end), tokens, strict=True):
            true = self._token(one.name, place)
            if true is None:
                return None
            if place > one.start and token != true:
                return place
        return one.end

    def _accepted(self, counts: Sequence[int]) -> None:
        """How many drafts of each request are accepted, with the token behind them."""
        for one in self._verified:
            if one.kept is not None:
                true = one.kept - one.start
                self._compare(one, "accepted count", counts[one.at : one.at + 1], [true])
                self.counters["rejections"] += one.kept < one.end
                self.counters["full_rejects"] += true == 1
                self.counters["full_accepts"] += one.kept == one.end

    def _start(self, rows: Values, at: int, name: str) -> int | None:
        """What is computed of a request: a prefill begins where the scheduler says."""
        starts = rows["starts"]
        return self._ends.get(name, 0) if starts is None else int(_listed(starts)[at])

    def _token(self, name: str, place: int) -> int | None:
        known = self._known.get(name, ())
        return known[place] if place < len(known) else None

    def _written(self, one: RequestPass, table: Sequence[int], slots: Sequence[int]) -> None:
        """The slots that a pass writes are those of the table, and what stands in those before is
        of the request's own tokens.
        """
        self._compare(one, "slots", slots, table[one.start : one.end])
        known = self._known.get(one.name, ())
        for place in range(min(one.start, len(known))):
            holds = self._slots.get(table[place]) if place < len(table) else ()
            if holds is not None:
                self.compared["context"] += 1
                mine = known[: place + 1]
                if holds != mine:
                    self._note(one, f"context at {place}", holds[-1:], mine[-1:])
        for place, slot in zip(range(one.start, one.end), slots, strict=False):
            before = self._slots.pop(slot, None)
            if place < min(one.kept or 0, len(known)):  # else of a token that nobody was given
                self._slots[slot] = known[: place + 1]
                self.counters["slot_reuses"] += before not in (None, self._slots[slot])

    def _compare(
        self, one: RequestPass, field: str, used: Sequence[int], true: Sequence[int | None]
    ) -> None:
        """A value that nobody knows is None."""
        self.compared[field] += len(used)
        pairs = zip(used, true, strict=False)
        shown = [value if right is None else right for value, right in pairs]
        if len(used) != len(true) or shown != list(used):
            self._note(one, field, used, shown)

    def _note(self, one: RequestPass, field: str, used: Sequence[int], true: Sequence[int]) -> None:
        if len(self.untrue) < UNTRUE_MAX:
            what = f"{field} of request {one.name} in row {one.row}"
            self.untrue.append(
                Wrong(step=one.step, what=what, used=_value(used), true=_value(true))
            )


def _value(values: Sequence[int]) -> WrongValue:
    return values[0] if len(values) == 1 else list(values)


def _number(value: object) -> int:
    assert isinstance(value, int)
    return value


def _listed(value: object) -> Any:
    assert isinstance(value, (list, tuple))
    return value
