"""CUDA graphs: a replay reads and writes its static buffers when it runs, not when it was
captured.
"""

from __future__ import annotations

import torch

from .registry import N, observe, racy, silent


def _doubling(static: torch.Tensor, result: torch.Tensor) -> torch.cuda.CUDAGraph:
    """A captured graph that writes twice `static` to `result`."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static, 2, out=result)
    return graph


@racy(pair="graph_input")
def graph_input_rewritten() -> None:
    """The next input is uploaded into the static buffer on a copy stream while the replay reads
    it.
    """
    static, result = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    upcoming = torch.full((N,), 5.0, pin_memory=True)
    graph = _doubling(static, result)
    copies = torch.cuda.Stream()
    torch.cuda.synchronize()
    graph.replay()
    with torch.cuda.stream(copies):
        static.copy_(upcoming, non_blocking=True)
    torch.cuda.synchronize()
    observe("result", result.sum().item())


@silent(pair="graph_input")
def graph_input_rewritten_after_replay() -> None:
    """The copy stream waits for the replay before it uploads the next input."""
    static, result = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    upcoming = torch.full((N,), 5.0, pin_memory=True)
    graph = _doubling(static, result)
    copies = torch.cuda.Stream()
    torch.cuda.synchronize()
    graph.replay()
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        static.copy_(upcoming, non_blocking=True)
    torch.cuda.synchronize()
    observe("result", result.sum().item())


@silent(pair="graph_input")
def graph_input_rewritten_on_same_stream() -> None:
    """Upload and replay are on one stream, which orders them."""
    static, result = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    upcoming = torch.full((N,), 5.0, pin_memory=True)
    graph = _doubling(static, result)
    graph.replay()
    static.copy_(upcoming, non_blocking=True)
    graph.replay()
    torch.cuda.synchronize()
    observe("result", result.sum().item())


@racy(pair="graph_producer")
def graph_replayed_before_input() -> None:
    """The input is written on a side stream and the replay does not wait for it."""
    static, result = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    graph = _doubling(static, result)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        static.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    observe("result", result.sum().item())


@silent(pair="graph_producer")
def graph_replayed_after_input() -> None:
    """The stream of the replay waits for the stream that writes the input."""
    static, result = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    graph = _doubling(static, result)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        static.fill_(5)
    torch.cuda.current_stream().wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()
    observe("result", result.sum().item())


@racy(pair="graph_output")
def graph_output_overwritten() -> None:
    """A copy stream downloads the static output while the next replay overwrites it."""
    static, result = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    graph = _doubling(static, result)
    host = torch.zeros(N, pin_memory=True)
    copies = torch.cuda.Stream()
    graph.replay()
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        host.copy_(result, non_blocking=True)
    static.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    observe("first result", host.sum().item())


@silent(pair="graph_output")
def graph_output_copied_first() -> None:
    """The replay's stream copies the static output into a buffer of the step; that is what is
    downloaded.
    """
    static, result = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    graph = _doubling(static, result)
    host = torch.zeros(N, pin_memory=True)
    copies = torch.cuda.Stream()
    graph.replay()
    own = result.clone()
    copies.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(copies):
        host.copy_(own, non_blocking=True)
    static.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    observe("first result", host.sum().item())


def _uploading(source: torch.Tensor, result: torch.Tensor) -> torch.cuda.CUDAGraph:
    """A captured graph that uploads pinned `source` to `result` and doubles it there."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result.copy_(source, non_blocking=True)
        result.mul_(2)
    return graph


@racy(pair="graph_captured_upload")
def graph_captured_upload_rewritten() -> None:
    """A captured upload reads its pinned source at every replay; the host rewrites it under the
    first.
    """
    source, result = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    graph = _uploading(source, result)
    graph.replay()
    source.fill_(5)
    torch.cuda.synchronize()
    observe("result", result.sum().item())


@silent(pair="graph_captured_upload")
def graph_captured_upload_waited_for() -> None:
    """The host waits for the replay before it rewrites the source of the captured upload."""
    source, result = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")
    graph = _uploading(source, result)
    graph.replay()
    torch.cuda.current_stream().synchronize()
    source.fill_(5)
    observe("result", result.sum().item())


@racy(pair="graph_captured_download")
def graph_captured_download_read() -> None:
    """A captured download lands when the replay runs; the host reads it at once."""
    static, host = torch.ones(N, device="cuda"), torch.zeros(N, pin_memory=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        host.copy_(static, non_blocking=True)
    graph.replay()
    observe("read", host.sum().item())
    torch.cuda.synchronize()


@silent(pair="graph_captured_download")
def graph_captured_download_waited_for() -> None:
    """An event behind the replay is waited for before the host reads."""
    static, host = torch.ones(N, device="cuda"), torch.zeros(N, pin_memory=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        host.copy_(static, non_blocking=True)
    landed = torch.cuda.Event()
    graph.replay()
    landed.record()
    landed.synchronize()
    observe("read", host.sum().item())


@silent(pair="graph_captured_download")
def graph_captured_downloads_in_turn() -> None:
    """Two replays on one stream download to the same place; the host reads after both."""
    static, host = torch.ones(N, device="cuda"), torch.zeros(N, pin_memory=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static.add_(1)
        host.copy_(static, non_blocking=True)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    observe("read", host.sum().item())


@racy(pair="graph_branches")
def graph_branches_unordered() -> None:
    """Inside the graph the fork comes before the write, so the branch that reads is not behind
    it.
    """
    static, seen = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        origin = torch.cuda.current_stream()
        side.wait_stream(origin)
        static.fill_(7)
        with torch.cuda.stream(side):
            seen.copy_(static)
        origin.wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


@silent(pair="graph_branches")
def graph_branches_forked_after_write() -> None:
    """Inside the graph the fork comes after the write; the join brings both branches together."""
    static, seen = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        origin = torch.cuda.current_stream()
        static.fill_(7)
        side.wait_stream(origin)
        with torch.cuda.stream(side):
            seen.copy_(static)
        origin.wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()
    observe("seen", seen.sum().item())


def _two_graphs(inputs: torch.Tensor) -> tuple[list[torch.cuda.CUDAGraph], list[torch.Tensor]]:
    """Two graphs over one memory pool: their temporaries take the same block. inputs: [2, N]
    float32.
    """
    graphs, outputs = [], []
    for row in inputs:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=graphs[0].pool() if graphs else None):
            outputs.append((row + 1) * 2)
        graphs.append(graph)
    return graphs, outputs


@racy(pair="graph_pool")
def graphs_of_one_pool_at_once() -> None:
    """Two graphs share a memory pool and are replayed on two streams at once: they share a
    temporary.

    `torch.cuda.graph`, "Sharing memory across captures": safe only if they never run at the same
    time.
    """
    inputs = torch.stack([torch.full((N,), 1.0), torch.full((N,), 10.0)]).to("cuda")
    graphs, outputs = _two_graphs(inputs)
    torch.cuda.synchronize()
    for graph in graphs:
        with torch.cuda.stream(torch.cuda.Stream()):
            graph.replay()
    torch.cuda.synchronize()
    observe("outputs", [output[0].item() for output in outputs])


@silent(pair="graph_pool")
def graphs_of_one_pool_in_turn() -> None:
    """Two graphs share a memory pool and are replayed on one stream, in the order of their
    capture.
    """
    inputs = torch.stack([torch.full((N,), 1.0), torch.full((N,), 10.0)]).to("cuda")
    graphs, outputs = _two_graphs(inputs)
    for graph in graphs:
        graph.replay()
    torch.cuda.synchronize()
    observe("outputs", [output[0].item() for output in outputs])


@racy(pair="graph_capture")
def graph_replay_beside_writer() -> None:
    """A side stream that takes no part in the capture writes the input and the replay does not wait
    for it.
    """
    static, result = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static, 2, out=result)
        with torch.cuda.stream(side):
            static.fill_(5)
    graph.replay()
    torch.cuda.synchronize()
    observe("result", result.sum().item())


@silent(pair="graph_capture")
def graph_capture_is_no_access() -> None:
    """Capturing runs nothing: a side stream may write the input meanwhile, if the replay waits for
    it.
    """
    static, result = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    side = torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static, 2, out=result)
        with torch.cuda.stream(side):
            static.fill_(5)
    torch.cuda.current_stream().wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()
    observe("result", result.sum().item())
