"""Ownership oracle: a cell that crosses a step boundary carries (request, step), and so does each
block of each tier of memory, its page; meeting another one's is a finding.

It sees what happens-before cannot: a value that was waited for correctly and belongs to another
request. Cells are looked at when they are read. Of pages the trace says enough, in the order in
which the program issues its work: kernels tag the blocks of a step's requests, copies move tags
between the tiers, and a block that is taken again has none. So a copy at a wrong place is found
where nobody has looked at what it carried yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from racegate.history.observe import Observation
from racegate.history.trace import (
    Access,
    HostAccess,
    Misowned,
    OpRecord,
    Trace,
    TraceEvent,
    rank_suffix,
    rows_of,
    unranked,
)
from racegate.scenario.settings import CacheMode
from racegate.scenario.spec import OwnScenario

_LOAD, _SAVE, _ZERO = "h2d:load.", "d2h:save.", "kernel:zero."
_STATES = ("state.", "conv.")
_POOLS = ("kv.", "draft_kv", *_STATES)

Owners = dict[int, "PageTag"]  # by block


def find_misowned(trace: Trace) -> list[Misowned]:
    """All reads of a run that found another owner than they meant to."""
    return [event for event in trace.events if isinstance(event, Misowned)]


class PageMistake(StrEnum):
    """What is wrong with a page when an operation gets there.

    ANOTHERS: a copy reads or fills what is another request's, or another prefix or step of its own
    GIVEN_BACK: a copy reads what was given back, or fills what another request has been given
    ZEROED: what a copy has filled, or a kernel written, is zeroed afterwards
    EARLY: a copy reads what a kernel of its own step has yet to write
    UNFILLED: a kernel reads what a copy has yet to fill
    """

    ANOTHERS = "anothers"
    GIVEN_BACK = "given-back"
    ZEROED = "zeroed"
    EARLY = "early"
    UNFILLED = "unfilled"


class PageTag(msgspec.Struct, frozen=True, gc=False):
    """Whose a page is. length: tokens of the prefix that a copy brought, 0 behind kernels"""

    request: str
    step: int
    length: int = 0


class WrongPage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A page at which an operation goes wrong. op, step: of it; request: for which it is
    found: the tag there, if there is one; other: the operation that makes it wrong, if one does
    """

    mistake: PageMistake
    op: str
    step: int
    request: str
    buffer: str
    block: int
    found: PageTag | None = None
    other: str | None = None


class _Planned(msgspec.Struct, frozen=True, gc=False):
    """What a plan says of a request. tables, fresh: of attention and of state blocks
    end: tokens computed behind the step; loaded: those of the prefix that the step brings
    is_run: whether the step computes it; a lost load is none
    """

    tables: tuple[Sequence[int], Sequence[int]]
    fresh: tuple[Sequence[int], Sequence[int]]
    end: int
    loaded: int
    is_run: bool


def find_wrong_pages(
    events: Iterable[TraceEvent],
    plans: Sequence[Observation],
    scenario: OwnScenario,
    plain: Mapping[str, Sequence[int]],
) -> list[WrongPage]:
    """Every page at which a copy between the tiers goes wrong in program order.

    Args:
        events: of a trace, in the order in which they were issued.
        plans: the observations at the boundary `scheduled`, of one rank.
        scenario: in another cache mode than offload there are no copies.
        plain: the tokens that each request has to deliver, behind its prompt.
    """
    if scenario.engine.cache_mode is not CacheMode.OFFLOAD:
        return []
    ranks: dict[str, _Tiers] = {}
    for event in events:
        if type(event) is OpRecord:
            rank = rank_suffix(event.name.partition("@")[0])
            if rank not in ranks:
                ranks[rank] = _Tiers(plans, scenario, plain)
            ranks[rank].issue(event)
        elif type(event) is HostAccess and event.access.is_write:
            for tiers in ranks.values():
                tiers.give_back(event.access)
    return [page for tiers in ranks.values() for page in tiers.found]


class _Tiers:
    """The tags of all tiers of one rank, storage by storage. found: what went wrong"""

    def __init__(
        self,
        plans: Sequence[Observation],
        scenario: OwnScenario,
        plain: Mapping[str, Sequence[int]],
    ) -> None:
        self._engine = scenario.engine
        self._plans = {seen.step: seen for seen in plans}
        self._images = {one.name: one.images for one in scenario.requests}
        self._tokens = {
            one.name: (*one.prompt, *plain.get(one.name, ())) for one in scenario.requests
        }
        self._planned: dict[int, dict[str, _Planned]] = {}
        self._tags: dict[int, Owners] = {}
        self._pools: dict[int, bool] = {}  # of the device: whether they have states
        self._step = -1
        self._owners: tuple[Owners, Owners] = ({}, {})
        self._stored: dict[int, list[tuple[OpRecord, str, int]]] = {}
        self._computed: set[int] = set()
        self.found: list[WrongPage] = []

    def issue(self, op: OpRecord) -> None:
        """One operation, as if it ran at once."""
        pools = [access for access in op.accesses if access.buffer.startswith(_POOLS)]
        if not pools:
            return
        for access in pools:
            self._pools.setdefault(access.storage, access.buffer.startswith(_STATES))
        if op.step > self._step:
            self._begin(op.step)
        name, (pool, *_) = unranked(op.name), pools
        if name.startswith((_LOAD, _SAVE)):
            (host,) = (access for access in op.accesses if access is not pool)
            move = self._load if name.startswith(_LOAD) else self._save
            prefix = _LOAD if name.startswith(_LOAD) else _SAVE
            whom = name.removeprefix(f"{prefix}{unranked(pool.buffer)}.").partition("@")[0]
            move(op, whom, pool, host)
        elif name.startswith(_ZERO):
            self._zero(op, pool)
        else:
            self._compute(op, pools)

    def give_back(self, access: Access) -> None:
        """Memory that the host writes, or frees, holds no page any longer."""
        self._tags.pop(access.storage, None)

    def _begin(self, step: int) -> None:
        """The blocks that a plan takes are nobody's pages any longer."""
        self._step = step
        self._stored, self._computed, self._owners = {}, set(), ({}, {})
        for request, planned in self._at(step).items():
            for storage, is_state in self._pools.items():
                tags = self._tags.get(storage, {})
                for block in planned.fresh[is_state]:
                    tags.pop(block, None)
            for owners, table in zip(self._owners, planned.tables, strict=True):
                owners.update(dict.fromkeys(table, PageTag(request, step)))

    def _at(self, step: int) -> dict[str, _Planned]:
        """What the plan of a step says, by request."""
        if step not in self._planned:
            seen = self._plans.get(step)
            self._planned[step] = {} if seen is None else _planned(seen)
        return self._planned[step]

    def _place(self, planned: _Planned, length: int, *, is_state: bool) -> Sequence[int]:
        """The blocks of a prefix of so many tokens."""
        table = planned.tables[is_state]
        if not is_state:
            return table[: length // self._engine.block_size]
        column = length // self._engine.state_interval - 1
        return table[column : column + 1] if column >= 0 else ()

    def _load(self, op: OpRecord, request: str, pool: Access, host: Access) -> None:
        is_state = self._pools[pool.storage]
        planned = self._at(op.step).get(request)
        length = 0 if planned is None else planned.loaded
        meant = () if planned is None else self._place(planned, length, is_state=is_state)
        tag = PageTag(request, op.step, length)
        source, tags = self._tags.get(host.storage, {}), self._tags.setdefault(pool.storage, {})
        for row in rows_of(host.rows):
            found = source.get(row)
            if found is None or not self._is_same(found, tag):
                self._wrong(_not_own(found), op, request, host, row, found=found)
        for block in rows_of(pool.rows):
            holder = self._owners[is_state].get(block)
            if block not in meant:
                self._wrong(PageMistake.ANOTHERS, op, request, pool, block, found=holder)
            elif holder is not None and holder.request != request:
                self._wrong(PageMistake.GIVEN_BACK, op, request, pool, block, found=holder)
            tags[block] = tag

    def _save(self, op: OpRecord, request: str, pool: Access, host: Access) -> None:
        planned = self._at(op.step).get(request)
        length = 0 if planned is None else planned.end
        is_state, tags = self._pools[pool.storage], self._tags.get(pool.storage, {})
        meant = () if planned is None else self._place(planned, length, is_state=is_state)
        for block in rows_of(pool.rows):
            found = tags.get(block)
            if found is None:
                is_early = op.step == self._step
                mistake = PageMistake.EARLY if is_early else PageMistake.GIVEN_BACK
                self._wrong(
                    mistake, op, request, pool, block, found=self._owners[is_state].get(block)
                )
            elif block not in meant or found.request != request or found.step > op.step:
                self._wrong(PageMistake.ANOTHERS, op, request, pool, block, found=found)
        self._stored.setdefault(pool.storage, []).append((op, request, pool.rows))
        tag = PageTag(request, op.step, length)
        self._tags[host.storage] = dict.fromkeys(rows_of(host.rows), tag)

    def _zero(self, op: OpRecord, pool: Access) -> None:
        tags = self._tags.get(pool.storage, {})
        for block in rows_of(pool.rows):
            found = tags.pop(block, None)
            if found is not None:
                self._wrong(PageMistake.ZEROED, op, found.request, pool, block, found=found)

    def _compute(self, op: OpRecord, pools: Sequence[Access]) -> None:
        """Kernels of a step read and write the blocks of its requests."""
        for pool in pools:
            if pool.storage not in self._computed:
                self._computed.add(pool.storage)
                self._await_loads(op, pool)
            if pool.is_write:
                self._written(op, pool)

    def _await_loads(self, op: OpRecord, pool: Access) -> None:
        """The first kernel of a step that has a pool needs what the step loads into it."""
        is_state, tags = self._pools[pool.storage], self._tags.get(pool.storage, {})
        for request, planned in self._at(op.step).items():
            if not planned.is_run or not planned.loaded:
                continue
            meant = PageTag(request, op.step, planned.loaded)
            for block in self._place(planned, planned.loaded, is_state=is_state):
                if (found := tags.get(block)) != meant:
                    self._wrong(PageMistake.UNFILLED, op, request, pool, block, found=found)

    def _written(self, op: OpRecord, pool: Access) -> None:
        for store, request, rows in self._stored.get(pool.storage, ()):
            if store.step == op.step and (early := rows & pool.rows):
                block = rows_of(early)[0]
                self._wrong(PageMistake.EARLY, store, request, pool, block, other=op.name)
        tags = self._tags.setdefault(pool.storage, {})
        owners = self._owners[self._pools[pool.storage]]
        tags.update((block, owners[block]) for block in rows_of(pool.rows) if block in owners)

    def _is_same(self, kept: PageTag, wanted: PageTag) -> bool:
        """Whether a prefix that was kept of one request is that which another begins with."""
        length = kept.length
        texts = [self._tokens.get(tag.request, ())[:length] for tag in (kept, wanted)]
        images = [
            [one for one in self._images.get(tag.request, ()) if one.start < length]
            for tag in (kept, wanted)
        ]
        return length == wanted.length and texts[0] == texts[1] and images[0] == images[1]

    def _wrong(
        self,
        mistake: PageMistake,
        op: OpRecord,
        request: str,
        access: Access,
        block: int,
        *,
        found: PageTag | None = None,
        other: str | None = None,
    ) -> None:
        self.found.append(
            WrongPage(
                mistake=mistake,
                op=op.name,
                step=op.step,
                request=request,
                buffer=access.buffer,
                block=block,
                found=found,
                other=other,
            )
        )


def _not_own(found: PageTag | None) -> PageMistake:
    return PageMistake.GIVEN_BACK if found is None else PageMistake.ANOTHERS


def _planned(seen: Observation) -> dict[str, _Planned]:
    """The plan of a step, by request."""
    detail, tokens = seen.detail, {name: count for name, count, _ in seen.values["plan"]}
    return {
        name: _Planned(
            tables=tables,
            fresh=fresh,
            end=detail["computed"].get(name, 0) + tokens.get(name, 0),
            loaded=loaded,
            is_run=name in tokens,
        )
        for name, (tables, fresh, loaded) in detail["taking"].items()
    }
