"""Observations beside what is true of them: each field by a rule of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from racegate.scenario.spec import DRAFT_LEN_MAX, Request
from racegate.targets.common.inside.watch import Seen, Values
from racegate.targets.common.wire import Wrong
from racegate.targets.vllm.inside.truth.course import (
    Course,
    EitherToken,
    RequestStep,
    ScriptedModel,
)
from racegate.targets.vllm.inside.truth.groups import GroupTable, shared_blocks
from racegate.targets.vllm.inside.truth.padding import padding_of
from racegate.targets.vllm.inside.truth.values import (
    NO_PENALTIES,
    Penalties,
    adapter_by_token,
    adapter_slots,
    below_most,
    computed_places,
    entry,
    forbidden,
    has_dimensions,
    has_penalties,
    in_rows,
    is_drafted,
    listed,
    penalty,
    run_places,
    seed,
    shown,
    temperature,
    with_next,
)
from racegate.targets.vllm.wire import STATE_TAGS, TOKENS_MAX, SchedulingMode

MODEL = "inputs of the model"
CHOSEN = "scheduled"  # the observation of what the scheduler chose, and what follows from it
UNTRUE_MAX = 20  # what follows from the first wrong value says little
Places = Callable[[RequestStep], Sequence[int | None]]
Starts = Sequence[int] | None  # of each row
# As the same values are called where landings are judged by them.
_WORDS = {"metadata.accepted": "accepted count", "zeroed.blocks": "blocks to zero"}


class Truth:
    """Compares the observations of one run, in their order.

    untrue: what is not what it should be; compared: how many values of each field were
    """

    def __init__(
        self,
        says: ScriptedModel,
        groups: Sequence[GroupTable],
        penalties: Penalties,
        scheduling: SchedulingMode = SchedulingMode.ASYNC,
    ) -> None:
        self._says = says
        self._groups = groups
        self._penalties = penalties
        self._course = Course(says, most=TOKENS_MAX, scheduling=scheduling)
        self._proposed: set[int] = set()  # steps in which drafts were made
        self._told: Any = 0  # the last step of which the scheduler has the output
        self._steps: dict[int, dict[str, RequestStep]] = {}
        self._rows: list[RequestStep] = []  # in the order of the batch
        self._before: dict[str, int] = {}  # rows of the step before, by request
        self._asked: Any = None  # drafts that are wanted of a row; None: all
        self._drafted: int | None = None  # passes of the drafter in this step; None: no model yet
        self.untrue: list[Wrong] = []
        self.compared: Counter[str] = Counter()

    def read(self, seen: Iterable[Seen]) -> None:
        """All observations of a run."""
        rules: dict[str, Callable[[int, Values], None]] = {
            CHOSEN: self._scheduled,
            "metadata": self._metadata,
            "attention": self._attention,
            MODEL: self._model,
            "inputs of the drafter": self._drafter,
            "previous rows": self._previous,
            "sampling": self._sampling,
            "accepted": self._accepted,
            "drafts": self._drafts,
            "masks": self._masks,
            "adapters": self._adapters,
            STATE_TAGS: self._state_tags,
            "sampled": self._sampled,
            "zeroed": self._zeroed,
            "padded graph": partial(self._padding, "padded graph"),
            "context of inputs of the model": partial(self._padding, "context of the model"),
        }
        for step, name, values in seen:
            if name in rules:
                rules[name](step, values)

    def _same(self, step: int, field: str, where: str, used: Any, true: Any) -> None:
        """One value. true: None if nobody knows it"""
        either = true if isinstance(true, EitherToken) else None
        if true is None or (either is not None and not either.is_known):
            return
        self.compared[field] += 1
        if either is not None:
            true = used if used in either else either[0]
        if used != true and len(self.untrue) < UNTRUE_MAX:
            what = f"{_WORDS.get(field, field)} {where}".rstrip()
            self.untrue.append(Wrong(step=step, what=what, used=shown(used), true=shown(true)))

    def _by_row(
        self, step: int, field: str, values: Values, true: Callable[[RequestStep], Any]
    ) -> None:
        """A field with one entry a row; what is behind the rows is padding."""
        name = field.rpartition(".")[2]
        used = values.get(name)
        if isinstance(used, list):
            for at, row in enumerate(self._rows):
                where = f"of request {row.request} in row {at}"
                self._same(step, field, where, entry(used, at), true(row))

    def _by_token(
        self,
        step: int,
        field: str,
        used: Any,
        true: Callable[[RequestStep], Sequence[object]],
        *,
        starts: Sequence[int] | None = None,
    ) -> None:
        """A field with one entry a token. starts: of each row in it, if not one behind the other"""
        if not isinstance(used, list):
            return
        begin = 0
        for at, row in enumerate(self._rows):
            first = begin if starts is None else (entry(starts, at) or 0)
            for count, token in enumerate(true(row)):
                where = f"of request {row.request} in row {at}, token {row.start + count}"
                place = first + count
                self._same(step, field, where, entry(used, place), token)
            begin += row.tokens

    def _scheduled(self, step: int, values: Values) -> None:
        chosen: Any = values["requests"]
        if not chosen:  # this is no step, and the next one has its number
            self._rows = []
            self._course.pass_over()
            return
        self._asked = values["asked"]
        self._before = self._course.unknown(self._rows, chosen)
        has_drafts = not self._proposed or step - 1 in self._proposed
        is_told = self._told == step - 1
        self._steps[step] = self._course.step(step, chosen, has_drafts=has_drafts, is_told=is_told)
        self._rows, self._drafted = [], None
        for name, row in self._steps[step].items():
            is_near = row.start >= TOKENS_MAX - DRAFT_LEN_MAX  # there the host cuts drafts short
            true = None if is_near else row.start + row.rejected_before
            believed, where = chosen[name]["computed"], f"of request {name}"
            self._same(step, f"{CHOSEN}.computed", where, believed, true)
        for owners, block in shared_blocks(self._steps[step].values(), self._groups, self._says):
            self._same(step, f"{CHOSEN}.blocks", owners, block, -1)
        rows = self._steps[step].values()
        self.compared[f"{CHOSEN}.blocks"] += sum(len(b) for row in rows for b in row.blocks)

    def _order(self, step: int, values: Values, *, is_whole: bool = True) -> bool:
        """The rows of the batch, or some, as the runner has them. Whether they are known"""
        names: Any = values.get("rows")
        rows = self._steps.get(step)
        if not isinstance(names, list) or rows is None:
            return False
        if is_whole:
            self._same(step, "rows", "of the batch", sorted(names), sorted(rows))
        self._rows = [rows[name] for name in names if name in rows]
        return len(self._rows) == len(names)

    def _metadata(self, step: int, values: Values) -> None:
        """Of recurrent layers."""
        if not self._order(step, values):
            return
        self._lengths(step, "metadata", values)
        self._by_row(step, "metadata.drafted", values, is_drafted)
        self._by_row(step, "metadata.accepted", values, self._count)
        self._states(step, values)

    def _count(self, row: RequestStep) -> int | None:
        """The count that a row with drafts is run with: 1 behind its prompt's last chunk. In a new
        block of states the state stands in the first slot, and the count may be 1 too.
        """
        if not row.drafts or row.last is None:
            return None
        return None if self._may_move(row) else max(row.last, 1)

    def _may_move(self, row: RequestStep) -> bool:
        moving = [group.size for group in self._groups if group.moves]
        begin = row.start - (row.last or 0)
        return any(max(begin, 0) // size != (row.end - 1) // size for size in moving)

    def _states(self, step: int, values: Values) -> None:
        number: Any = values.get("group")
        if number is None:
            return
        group = self._groups[number]
        ends: Any = values.get("decodes", 0)  # of Mamba2, whose decodes come first
        drafted: Any = values["drafted"]
        pairs = list(zip(self._rows, drafted, strict=False))
        for field, rows in (("spec_state_indices_tensor", [row for row, one in pairs if one]),
                            ("non_spec_state_indices_tensor", [r for r, one in pairs if not one]),
                            ("state_indices_tensor_d", self._rows[:ends]),
                            ("state_indices_tensor_p", self._rows[ends:])):  # fmt: skip
            used = values.get(field)
            if not isinstance(used, list):
                continue
            for at, row in enumerate(rows):
                one = entry(used, at)
                slots = one if isinstance(one, list) else [one]
                true = group.states(row, number, len(slots))
                self._same(step, f"metadata.{field}", f"of request {row.request}", slots, true)

    def _lengths(self, step: int, boundary: str, values: Values, *, drafts: int = 0) -> None:
        """Where rows begin, and how long they are. drafts: made by the drafter so far"""
        starts = [0]
        for row in self._rows:
            starts.append(starts[-1] + (1 if drafts else row.tokens))
        self._same(step, f"{boundary}.query_start", "", values["query_start"], starts)
        length = f"{boundary}.seq_lens"
        if drafts:
            self._by_row(step, length, values, lambda row: below_most(row.computed + drafts))
        else:
            self._by_row(step, length, values, lambda row: row.end)
        bound = f"{boundary}.seq_lens_cpu_upper_bound"
        self._by_row(
            step, bound, values, lambda row: below_most(row.end + row.rejected_before + drafts)
        )

    def _attention(self, step: int, values: Values) -> None:
        if not self._order(step, values):
            return
        drafts = self._drafted or 0
        self._lengths(step, "attention", values, drafts=drafts)
        number: Any = values.get("group")
        if number is None:
            return
        group = self._groups[number]

        def slots(row: RequestStep) -> list[int | None]:
            first, behind = row.start, row.computed
            if drafts:
                first, behind = row.computed + drafts - 1, row.computed + drafts
            places = range(first, min(behind, TOKENS_MAX))
            return [group.slot(row, number, place) for place in places]

        starts: Any = values["query_start"]
        self._by_token(step, "attention.slots", values["slots"], slots, starts=starts)
        tables: Any = values.get("table")
        if isinstance(tables, list):
            for at, row in enumerate(self._rows):
                true, used = group.table(row, number), entry(tables, at) or []
                where = f"of request {row.request}"
                self._same(step, "attention.table", where, used[: len(true)], true)

    def _model(self, step: int, values: Values) -> None:
        self._drafted, inputs = 0, self._course.inputs
        self._by_token(step, f"{MODEL}.tokens", values["tokens"], inputs)
        self._positions(step, f"{MODEL}.positions", values["positions"], run_places)
        self._by_token(step, f"{MODEL}.images", values.get("images"), self._course.images)

    def _drafter(self, step: int, values: Values) -> None:
        drafts, course = self._drafted or 0, self._course
        self._drafted = drafts + 1
        names = ("inputs of the drafter.tokens", "inputs of the drafter.positions")
        if not drafts:
            hidden = values.get("hidden")
            self._by_token(step, "inputs of the drafter.hidden", hidden, course.hidden)
            self._by_token(step, names[0], values["tokens"], course.drafter_inputs)
            self._positions(step, names[1], values["positions"], computed_places)
            return
        self._by_row(step, names[0], values, lambda row: course.draft(row, drafts))
        at = lambda row: [below_most(row.computed + drafts - 1)]  # noqa: E731
        self._positions(step, names[1], values["positions"], at, range(len(self._rows)))

    def _positions(
        self, step: int, field: str, used: Any, places: Places, starts: Starts = None
    ) -> None:
        """One number a token, or three."""
        if not has_dimensions(used):
            self._by_token(step, field, used, places, starts=starts)
            return
        for axis, numbers in enumerate(used):
            self._by_token(step, field, numbers, partial(self._along, places, axis), starts=starts)

    def _along(self, places: Places, axis: int, row: RequestStep) -> list[int | None]:
        known = [place for place in places(row) if place is not None]
        found = self._says.coordinates_at(row.index, known)
        return [where[axis] for where in found]

    def _previous(self, step: int, values: Values) -> None:
        """Which row a request had in the step before, if it got a token there."""
        if self._order(step, values):
            before = self._before
            self._by_row(step, "previous rows.at", values, lambda row: before.get(row.request, -1))

    def _state_tags(self, step: int, values: Values) -> None:
        """What the recurrent state was made of that each row goes on from."""
        if self._order(step, values):
            self._by_row(step, f"{STATE_TAGS}.tags", values, self._course.state)

    def _adapters(self, step: int, values: Values) -> None:
        """Which adapter each token is run with, and in which slot."""
        if self._order(step, values):
            self._by_token(step, "adapters.tokens", values["tokens"], adapter_by_token)
            ids: Any = values["ids"]
            slots = partial(adapter_slots, ids)
            self._by_token(step, "adapters.slots", values.get("slots"), slots)

    def _sampling(self, step: int, values: Values) -> None:
        """What each row is sampled with, or each of its logits."""
        is_by_logits = "sums" in values
        if not self._order(step, values, is_whole=not is_by_logits):
            return
        rows = [row for row in self._rows for _ in range(row.drafts + 1 if is_by_logits else 1)]
        asked: dict[str, Callable[[Request], float | None]]
        asked = {"temperature": temperature, "seeds": seed}
        asked |= {name: partial(penalty, self._penalties, name) for name in NO_PENALTIES}
        for name, of in asked.items():
            used = listed(values.get(name), rows)
            for at, (row, one) in enumerate(zip(rows, used, strict=False)):
                where = f"of request {row.request} in row {at}"
                self._same(step, f"sampling.{name}", where, one, of(self._request(row)))
        self._by_row(step, "sampling.outputs", values, self._counted)

    def _counted(self, row: RequestStep) -> list[int | None] | None:
        """The tokens that a row's penalties count, if it has any: others' are not kept true."""
        is_penalised = has_penalties(self._penalties, self._request(row))
        return self._course.before(row) if is_penalised else None

    def _request(self, row: RequestStep) -> Request:
        return self._course.request(row.request)

    def _accepted(self, step: int, values: Values) -> None:
        """What verification comes to, on the device."""
        if not self._order(step, values):
            return
        values = with_next(in_rows(values), self._rows)
        self._by_row(step, "accepted.counts", values, lambda row: row.accepted)
        self._by_row(step, "accepted.rejected", values, lambda row: row.rejected)
        self._by_row(step, "accepted.next", values, self._course.next_token)

    def _drafts(self, step: int, values: Values) -> None:
        if not self._order(step, values):
            return
        self._proposed.add(step)
        used: Any = values["tokens"]
        for at, row in enumerate(self._rows):
            made = (entry(used, at) or [])[: self._asked]
            self._course.note_drawn(row.request, made)
            for number, one in enumerate(made, start=1):
                where = f"{number} of request {row.request} in row {at}"
                self._same(step, "drafts.tokens", where, one, self._course.draft(row, number))

    def _masks(self, step: int, values: Values) -> None:
        """Which tokens a grammar forbids, by count and sum: for each sampled, and one rejected."""
        if not self._order(step, values):
            return
        used: Any = values["forbidden"]
        begin = 0
        for row in self._rows:
            for count in range(row.accepted):
                true = self._forbidden(row, row.known + count, int(values["size"]))  # type: ignore[call-overload]
                where = f"of request {row.request}, token {row.known + count}"
                self._same(step, "masks.forbidden", where, entry(used, begin + count), true)
            begin += row.drafts + 1

    def _forbidden(self, row: RequestStep, place: int, size: int) -> list[int] | None:
        before = self._says.token_at(row.index, place - 1)
        return forbidden(self._request(row), place, before, size)

    def _sampled(self, step: int, told: Any) -> None:
        """What the scheduler gets, of an earlier step."""
        tokens, self._told = told["tokens"], told["step"]
        for name, row in self._steps.get(told["step"], {}).items():
            if name in tokens:
                true = self._course.outputs(row)
                if None not in true:
                    self._same(step, "sampled.tokens", f"of request {name}", tokens[name], true)

    def _zeroed(self, step: int, values: Values) -> None:
        """Fresh blocks of keys and values: what nobody had before has to be zeroed."""
        self._same(step, "zeroed.blocks", "", values["blocks"], values["asked"])

    def _padding(self, of: str, step: int, values: Values) -> None:
        """Of a captured graph, or of any forward pass."""
        tokens = sum(row.tokens for row in self._steps.get(step, {}).values())
        for field, where, used, true in padding_of(of, values, tokens):
            self._same(step, field, where, used, true)
