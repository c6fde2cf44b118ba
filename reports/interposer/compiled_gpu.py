"""Shows on a real GPU what a compiler drops, without racegate: a slow stream, and a wrong value.

    python reports/interposer/compiled_gpu.py OUT.json

Each program of `tests/interpose/compiled_regions` that lacks an edge is run three times behind an
operation that keeps its stream busy: as plain Python, as this machine's torch compiles it, and by
the calls that the compiler of torch 2.14.1 writes for it, one by one. Prints the sums that come
out; those that differ from plain Python's are wrong.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch._dynamo.utils import counters

from racegate.jobs.environment import environment_of
from racegate.scenario.untrusted.files import write_json

CYCLES = 400_000_000  # that a stream is busy before it: some tenths of a second
Region = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def upload(given: torch.Tensor, square: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of `upload_from_reused_buffer.py`."""
    there = (given * 2).to("cuda", non_blocking=True)
    return there + 1, torch.cumsum(square @ square, 0)


def upload_as_written(
    given: torch.Tensor, square: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The calls of the compiled region: the product's memory is that of the upload's source."""
    source = torch.empty_strided((64,), (1,), pin_memory=True)
    torch.mul(given, 2, out=source)
    there = torch.empty_strided((64,), (1,), device="cuda")
    there.copy_(source, non_blocking=True)
    there = there + 1
    product = source.view(8, 8)
    torch.mm(square, square, out=product)
    return there, torch.ops.aten.cumsum.default(product, dim=0)


def products(
    side: torch.cuda.Stream, x: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Of `reuse_of_a_recorded_buffer.py`."""
    current = torch.cuda.current_stream()
    first = x @ w
    side.wait_stream(current)
    with torch.cuda.stream(side):
        second = first @ w
        first.record_stream(side)
    third = w @ w
    fourth = third @ w
    current.wait_stream(side)
    return second, fourth


def products_as_written(
    side: torch.cuda.Stream, x: torch.Tensor, w: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The calls of the compiled region: the third product is written over the first."""
    current = torch.cuda.current_stream()
    first = torch.empty_strided((8, 8), (8, 1), device="cuda")
    torch.mm(x, w, out=first)
    side.wait_stream(current)
    with torch.cuda.stream(side):
        first.record_stream(side)
        second = torch.empty_strided((8, 8), (8, 1), device="cuda")
        torch.mm(first, w, out=second)
    third = first
    torch.mm(w, w, out=third)
    fourth = torch.empty_strided((8, 8), (8, 1), device="cuda")
    torch.mm(third, w, out=fourth)
    current.wait_stream(side)
    return second, fourth


def seen(
    region: Region, inputs: tuple[torch.Tensor, ...], busy: torch.cuda.Stream | None
) -> dict[str, object]:
    """What comes out behind a busy stream (None: the current one), and what the compiler did."""
    counters.clear()
    try:
        for _ in range(2):  # the first time compiles
            torch.cuda.synchronize()
            with torch.cuda.stream(busy):
                torch.cuda._sleep(CYCLES)
            out, _ = region(*inputs)
            torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001  what it raises is what was seen
        return {"raised": f"{type(error).__name__}: {str(error)[:300]}"}
    breaks = sum(counters["graph_break"].values())
    return {"sum": float(out.sum()), "graph_breaks": breaks}


def main() -> None:
    """Both programs, each in three ways."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    side = torch.cuda.Stream()
    host = torch.ones(64), torch.ones(8, 8)
    device = torch.full((8, 8), 2.0, device="cuda"), torch.ones(8, 8, device="cuda")
    ways: dict[
        str, dict[str, tuple[Region, tuple[torch.Tensor, ...], torch.cuda.Stream | None]]
    ] = {
        "upload_from_reused_buffer": {
            "as Python": (upload, host, None),
            "as compiled here": (torch.compile(upload), host, None),
            "as torch 2.14.1 writes it": (upload_as_written, host, None),
        },
        "reuse_of_a_recorded_buffer": {
            "as Python": (partial(products, side), device, side),
            "as compiled here": (torch.compile(lambda x, w: products(side, x, w)), device, side),
            "as torch 2.14.1 writes it": (partial(products_as_written, side), device, side),
        },
    }
    found = {name: {way: seen(*how) for way, how in of.items()} for name, of in ways.items()}
    for name, of in found.items():
        for way, what in of.items():
            print(f"{name}, {way}: {what}", flush=True)
    write_json(options.out, {"environment": environment_of("cuda"), "programs": found})


if __name__ == "__main__":
    main()
