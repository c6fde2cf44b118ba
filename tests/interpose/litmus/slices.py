"""Slices of one tensor: what two streams may touch at a time, and what overlaps after all."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .registry import N, observe, racy, silent


def _on_two_streams(first: Callable[[], object], second: Callable[[], object]) -> None:
    """Runs both on streams of their own, unordered with each other, after all that came before."""
    torch.cuda.synchronize()
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for stream, work in zip(streams, (first, second), strict=True):
        with torch.cuda.stream(stream):
            work()
    torch.cuda.synchronize()


@racy(pair="rows")
def rows_overlapping() -> None:
    """Two streams fill row ranges that share one row."""
    table = torch.zeros(8, N, device="cuda")
    _on_two_streams(lambda: table[:5].fill_(1), lambda: table[4:].fill_(2))
    observe("rows", table[:, 0].tolist())


@silent(pair="rows")
def rows_disjoint() -> None:
    """Two streams fill row ranges without a common row."""
    table = torch.zeros(8, N, device="cuda")
    _on_two_streams(lambda: table[:4].fill_(1), lambda: table[4:].fill_(2))
    observe("rows", table[:, 0].tolist())


@racy(pair="columns")
def columns_overlapping() -> None:
    """Two streams fill column ranges that share one column."""
    table = torch.zeros(32, 32, device="cuda")
    _on_two_streams(lambda: table[:, :17].fill_(1), lambda: table[:, 16:].fill_(2))
    observe("columns", table[0].tolist())


@silent(pair="columns")
def columns_disjoint() -> None:
    """Two streams fill column ranges: their address ranges interleave, their bytes do not meet."""
    table = torch.zeros(32, 32, device="cuda")
    _on_two_streams(lambda: table[:, :16].fill_(1), lambda: table[:, 16:].fill_(2))
    observe("columns", table[0].tolist())


@racy(pair="strides")
def strides_meeting() -> None:
    """Every second and every third element meet at every sixth."""
    table = torch.zeros(N, device="cuda")
    _on_two_streams(lambda: table[::2].fill_(1), lambda: table[::3].fill_(2))
    observe("start", table[:8].tolist())


@silent(pair="strides")
def strides_interleaved() -> None:
    """Even and odd elements never meet."""
    table = torch.zeros(N, device="cuda")
    _on_two_streams(lambda: table[::2].fill_(1), lambda: table[1::2].fill_(2))
    observe("start", table[:8].tolist())


@racy(pair="diagonal")
def diagonal_and_transpose() -> None:
    """The diagonal is part of every row, seen transposed or not."""
    table = torch.zeros(32, 32, device="cuda")
    _on_two_streams(lambda: table.diagonal().fill_(1), lambda: table.t()[3].fill_(2))
    observe("crossing", table[3, 3].item())


@silent(pair="diagonal")
def diagonals_side_by_side() -> None:
    """Two diagonals share no element."""
    table = torch.zeros(32, 32, device="cuda")
    _on_two_streams(lambda: table.diagonal().fill_(1), lambda: table.diagonal(1).fill_(2))
    observe("corner", table[:2, :2].tolist())


@racy(pair="dtype_views")
def dtype_view_overlapping() -> None:
    """A byte view and the words under it are the same memory."""
    words = torch.zeros(N, dtype=torch.int32, device="cuda")
    as_bytes = words.view(torch.uint8)
    _on_two_streams(lambda: words[1].fill_(-1), lambda: as_bytes[6:8].fill_(0))
    observe("word", words[1].item())


@silent(pair="dtype_views")
def dtype_view_disjoint() -> None:
    """The byte view begins where the words that the other stream writes have ended."""
    words = torch.zeros(N, dtype=torch.int32, device="cuda")
    as_bytes = words.view(torch.uint8)
    _on_two_streams(lambda: words[1].fill_(-1), lambda: as_bytes[8:12].fill_(1))
    observe("words", words[1:3].tolist())


@racy(pair="complex_parts")
def complex_real_and_whole() -> None:
    """One stream writes the real parts, the other the whole numbers."""
    table = torch.zeros(N, dtype=torch.complex64, device="cuda")
    _on_two_streams(lambda: torch.view_as_real(table)[:, 0].fill_(1), lambda: table.fill_(2))
    observe("first", torch.view_as_real(table)[0].tolist())


@silent(pair="complex_parts")
def complex_real_and_imaginary() -> None:
    """Real and imaginary parts alternate in memory and share no byte."""
    table = torch.zeros(N, dtype=torch.complex64, device="cuda")
    parts = torch.view_as_real(table)
    _on_two_streams(lambda: parts[:, 0].fill_(1), lambda: parts[:, 1].fill_(2))
    observe("first", parts[0].tolist())


@racy(pair="index_put")
def index_put_overlapping() -> None:
    """Two index writes have one row in common."""
    table = torch.zeros(8, N, device="cuda")
    first = torch.tensor([0, 2, 4], device="cuda")
    second = torch.tensor([1, 4, 7], device="cuda")
    ones, twos = torch.ones(3, N, device="cuda"), torch.full((3, N), 2.0, device="cuda")
    _on_two_streams(
        lambda: table.index_put_((first,), ones), lambda: table.index_put_((second,), twos)
    )
    observe("rows", table[:, 0].tolist())


@silent(pair="index_put")
def index_put_disjoint() -> None:
    """Two index writes have no row in common, as their indices say."""
    table = torch.zeros(8, N, device="cuda")
    first = torch.tensor([0, 2, 4], device="cuda")
    second = torch.tensor([1, 3, 7], device="cuda")
    ones, twos = torch.ones(3, N, device="cuda"), torch.full((3, N), 2.0, device="cuda")
    _on_two_streams(
        lambda: table.index_put_((first,), ones), lambda: table.index_put_((second,), twos)
    )
    observe("rows", table[:, 0].tolist())


@racy(pair="scatter")
def scatter_overlapping() -> None:
    """Two scatters write one column of a row in common."""
    table = torch.zeros(2, N, device="cuda")
    first = torch.tensor([[0, 1], [2, 3]], device="cuda")
    second = torch.tensor([[1, 4], [5, 6]], device="cuda")
    _on_two_streams(lambda: table.scatter_(1, first, 1.0), lambda: table.scatter_(1, second, 2.0))
    observe("start", table[:, :7].tolist())


@silent(pair="scatter")
def scatter_disjoint() -> None:
    """Equal columns in different rows are different elements."""
    table = torch.zeros(2, N, device="cuda")
    first = torch.tensor([[0, 1], [2, 3]], device="cuda")
    second = torch.tensor([[2, 3], [0, 1]], device="cuda")
    _on_two_streams(lambda: table.scatter_(1, first, 1.0), lambda: table.scatter_(1, second, 2.0))
    observe("start", table[:, :4].tolist())


@racy(pair="gather")
def gather_of_written_row() -> None:
    """An embedding lookup reads a row that another stream is writing."""
    table = torch.zeros(8, N, device="cuda")
    wanted = torch.tensor([1, 5], device="cuda")
    found = torch.zeros(2, N, device="cuda")
    _on_two_streams(
        lambda: torch.index_select(table, 0, wanted, out=found), lambda: table[5].fill_(1)
    )
    observe("found", found[:, 0].tolist())


@silent(pair="gather")
def gather_of_other_rows() -> None:
    """The rows looked up and the row written are different, as the indices say."""
    table = torch.zeros(8, N, device="cuda")
    wanted = torch.tensor([1, 5], device="cuda")
    found = torch.zeros(2, N, device="cuda")
    _on_two_streams(
        lambda: torch.index_select(table, 0, wanted, out=found), lambda: table[6].fill_(1)
    )
    observe("found", found[:, 0].tolist())


@racy(pair="index_add", observable=False)
def index_add_to_one_row() -> None:
    """Two unordered additions to one row: no order of the two changes the sum, but nothing orders
    them.
    """
    table = torch.zeros(8, N, device="cuda")
    rows = torch.tensor([3], device="cuda")
    ones, twos = torch.ones(1, N, device="cuda"), torch.full((1, N), 2.0, device="cuda")
    _on_two_streams(
        lambda: table.index_add_(0, rows, ones), lambda: table.index_add_(0, rows, twos)
    )
    observe("row", table[3, 0].item())


@silent(pair="index_add")
def index_add_to_two_rows() -> None:
    """Two additions to different rows."""
    table = torch.zeros(8, N, device="cuda")
    third, fourth = torch.tensor([3], device="cuda"), torch.tensor([4], device="cuda")
    ones, twos = torch.ones(1, N, device="cuda"), torch.full((1, N), 2.0, device="cuda")
    _on_two_streams(
        lambda: table.index_add_(0, third, ones), lambda: table.index_add_(0, fourth, twos)
    )
    observe("rows", table[3:5, 0].tolist())


@racy(pair="masked_fill", observable=False)
def masked_fill_disjoint_masks() -> None:
    """`masked_fill_` loads and stores every element, those outside its mask with the value it
    loaded.

    Two of them on one tensor can lose each other's update where their kernels interleave
    (IndexKernel.cu).
    """
    table = torch.zeros(N, device="cuda")
    low = torch.arange(N, device="cuda") < N // 2
    high = ~low
    _on_two_streams(lambda: table.masked_fill_(low, 1), lambda: table.masked_fill_(high, 2))
    observe("ends", table[[0, -1]].tolist())


@silent(pair="masked_fill")
def masked_fill_of_disjoint_slices() -> None:
    """Each mask is applied to a slice of its own."""
    table = torch.zeros(N, device="cuda")
    mask = torch.ones(N // 2, dtype=torch.bool, device="cuda")
    low, high = table[: N // 2], table[N // 2 :]
    _on_two_streams(lambda: low.masked_fill_(mask, 1), lambda: high.masked_fill_(mask, 2))
    observe("ends", table[[0, -1]].tolist())


@racy(pair="in_place")
def in_place_updates_do_not_commute() -> None:
    """One stream adds, the other multiplies, in whatever order."""
    table = torch.ones(N, device="cuda")
    _on_two_streams(lambda: table.add_(1), lambda: table.mul_(3))
    observe("first", table[0].item())


@silent(pair="in_place")
def in_place_updates_of_chunks() -> None:
    """`chunk` hands out views without a common element."""
    table = torch.ones(N, device="cuda")
    low, high = table.chunk(2)
    _on_two_streams(lambda: low.add_(1), lambda: high.mul_(3))
    observe("ends", table[[0, -1]].tolist())
