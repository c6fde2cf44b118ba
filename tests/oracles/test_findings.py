"""How findings of traces and outputs are worded: signature, place, edge and advice."""

from __future__ import annotations

import pytest

from racegate.history.edge import Edge
from racegate.history.finding import FindingKind
from racegate.history.observe import Boundary, Observation
from racegate.history.run import Run
from racegate.history.trace import Access, Conflict, Misowned, OpRecord, Trace
from racegate.oracles.findings import from_conflicts, from_losses, from_misowned
from racegate.oracles.losslessness import Loss

EDGE = Edge(
    name="landed",
    before="the copy",
    after="the reader",
    buffers=("counts_*",),
    first=("d2h:counts",),
    second=("kernel:*",),
    reason="a stale count is read",
)


def op(name: str, *, step: int) -> OpRecord:
    access = Access("counts_gpu", 1, 1, True)
    return OpRecord(name=name, step=step, lane=1, seq=1, clock=(0, 0), accesses=(access,))


def conflict(
    rows: int = 0b110, *, second: str = "kernel:read@4", writes: tuple[bool, bool] = (True, False)
) -> Conflict:
    return Conflict(
        buffer="counts_gpu",
        first=op("d2h:counts@3", step=3),
        second=op(second, step=4),
        first_writes=writes[0],
        second_writes=writes[1],
        rows=rows,
    )


def run_of(*edges: Edge) -> Run:
    prepared = [
        Observation(step=step, boundary=Boundary.PREPARED, values={"rows": rows})
        for step, rows in ((3, ("A", "B")), (4, ("C", "D")))
    ]
    other = Observation(step=3, boundary=Boundary.INPUTS, values={"rows": ("X", "Y")})
    return Run(
        trace=Trace(lanes=("main",), events=(), holds=()),
        observations=(*prepared, other),
        edges=edges,
        result=None,
        stopped=None,
        seconds=0.0,
    )


def test_a_conflict_names_the_pair_the_rows_and_the_edge() -> None:
    (found,) = from_conflicts([conflict()], run_of(EDGE))
    assert found.message == (
        "d2h:counts@3 writes and kernel:read@4 reads counts_gpu rows 1, 2, and no path of edges "
        "orders them. Edge landed should put the copy before the reader; it is missing, or stands "
        "behind kernel:read@4. Without it a stale count is read."
    )
    assert (found.kind, found.signature) == (
        FindingKind.CONFLICT,
        "conflict/counts_gpu/d2h:counts/kernel:read",
    )
    assert (found.buffer, found.op, found.other) == ("counts_gpu", "d2h:counts@3", "kernel:read@4")
    assert (found.edge, found.step, found.request) == ("landed", 4, "B")


def test_without_an_edge_it_says_what_to_record() -> None:
    second = "h2d:other@4"
    (found,) = from_conflicts([conflict(second=second, writes=(False, True))], run_of(EDGE))
    assert "d2h:counts@3 reads and h2d:other@4 writes counts_gpu" in found.message
    assert found.message.endswith(
        "No declared edge is for this pair: record an event behind d2h:counts@3 and let the lane "
        "of h2d:other@4 wait for it before."
    )
    assert found.edge is None


@pytest.mark.parametrize(("rows", "request_name"), [(0b1, "A"), (0b10, "B"), (0b100, None)])
def test_the_request_is_that_of_the_first_row_in_the_step_of_the_first(
    rows: int, request_name: str | None
) -> None:
    (found,) = from_conflicts([conflict(rows)], run_of())
    assert found.request == request_name


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        (0xFF, "0, 1, 2, 3, 4, 5, 6, 7,"),
        (0x1FF, "0, 1, 2, 3, 4, 5, 6, 7, ... (9 rows),"),
    ],
)
def test_many_rows_are_counted(rows: int, text: str) -> None:
    (found,) = from_conflicts([conflict(rows)], run_of())
    assert f"rows {text} and no path" in found.message


def test_one_finding_for_each_pair_of_operations_from_its_first_conflict() -> None:
    others = [conflict(1), conflict(2), conflict(1, second="kernel:write@9")]
    found = from_conflicts(others, run_of(EDGE))
    assert [each.request for each in found] == ["A", "A"]
    assert len({each.signature for each in found}) == 2


@pytest.mark.parametrize(
    "changed",
    [{"buffers": ("tokens_*",)}, {"first": ("kernel:*",)}, {"second": ("d2h:*",)}],
    ids=str,
)
def test_an_edge_is_named_only_if_pair_and_buffer_are_its_own(
    changed: dict[str, tuple[str, ...]],
) -> None:
    fields = {name: getattr(EDGE, name) for name in Edge.__struct_fields__}
    other = Edge(**(fields | {"name": "other"} | changed))
    (found,) = from_conflicts([conflict()], run_of(other, EDGE))
    assert found.edge == "landed"


def misowned(actual: tuple[str, int] | None, *, reader: str = "kernel:read@4") -> Misowned:
    return Misowned(
        name=reader, step=4, buffer="counts_gpu", row=2, expected=("A", 3), actual=actual
    )


@pytest.mark.parametrize(
    ("actual", "text", "shown"),
    [(("B", 2), "the value of request B, step 2", ["B", 2]), (None, "nobody's value", None)],
)
def test_a_wrong_owner_is_named_with_the_right_one(
    actual: tuple[str, int] | None, text: str, shown: object
) -> None:
    seen = [misowned(actual), misowned(None), misowned(None, reader="kernel:other@4")]
    first, other = from_misowned(seen)
    assert first.message == (
        f"kernel:read@4 reads counts_gpu row 2 for request A, step 3 and finds {text}"
    )
    assert (first.kind, first.signature) == (
        FindingKind.OWNERSHIP,
        "ownership/counts_gpu/kernel:read",
    )
    assert (first.buffer, first.op, first.step) == ("counts_gpu", "kernel:read@4", 4)
    assert (first.request, first.field, first.expected, first.actual) == (
        "A",
        "owner",
        ["A", 3],
        shown,
    )
    assert other.op == "kernel:other@4"


def test_the_first_loss_is_told() -> None:
    losses = [Loss(request=name, index=2, expected=7, actual=None) for name in ("A", "B")]
    (found,) = from_losses(losses)
    assert found.message == "request A: delivered token 2 is None, plain decoding gives 7"
    assert (found.kind, found.signature) == (FindingKind.LOSS, "loss/delivered")
    assert (found.request, found.field) == ("A", "delivered")
    assert (found.expected, found.actual) == (7, None)
    assert from_losses([]) == []
