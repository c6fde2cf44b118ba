"""Tags on pages that a connector moves, and what stands in for the thread that moves them."""

from __future__ import annotations

import sys
from dataclasses import make_dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bare_session import engine_session
from racegate.scenario.expect import Expect
from racegate.scenario.files import load_for
from racegate.scenario.spec import Request, Scenario
from racegate.targets.vllm.cell import Cell
from racegate.targets.vllm.inside.tiers.connectors import (
    HandedJobs,
    HandedWorker,
    fail_loads,
    watch_transfers,
)
from racegate.targets.vllm.inside.tiers.pages import (
    TAGS,
    Rows,
    leave,
    page_bytes,
    tags_of,
)
from racegate.targets.vllm.inside.watch import RunnerWatch, find_wrong
from racegate.targets.vllm.wire import CaptureMode, ConnectorKind, ModelRunner, StateMode

SCRIPTS = Path(__file__).parents[3] / "scenarios" / "vllm"
SIZE, BLOCKS = 4, 8


def pages() -> Any:
    """Tags of pages that are longer than what is tagged of them."""
    memory = torch.zeros(BLOCKS, SIZE * 5, dtype=torch.int32)
    return torch.as_strided(memory, (BLOCKS, SIZE, 2), (SIZE * 5, 2, 1))


def one_row(blocks: list[int], known: int, count: int) -> Rows:
    """A request with so many tokens before the step and in it."""
    places = range(known, known + count)
    slots = [blocks[place // SIZE] * SIZE + place % SIZE for place in places]
    given = (slots, [blocks], [known + count], [0, count])
    return Rows(*(torch.tensor(one, dtype=torch.int64) for one in given))


@st.composite
def steps(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Blocks of a request, and how many tokens each of its steps runs."""
    blocks = draw(st.permutations(range(BLOCKS)))[: draw(st.integers(1, 4))]
    counts = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    while sum(counts) > len(blocks) * SIZE:
        counts.pop()
    return list(blocks), counts or [1]


@given(steps())
def test_what_a_request_left_in_its_pages_it_finds_there(
    taken: tuple[list[int], list[int]],
) -> None:
    """And a step touches the bytes that are said, and no others."""
    (blocks, counts), memory, known = taken, pages(), 0
    for count in counts:
        rows = one_row(blocks, known, count)
        reads, writes = page_bytes(memory, rows, 1)
        before = memory.clone()
        leave(memory, rows, 1, torch.arange(known, known + count) + 100)
        changed = (memory != before).any(-1).nonzero().tolist()
        base, stride = memory.data_ptr(), memory.stride(0) * 4
        places = {base + block * stride + offset * 8 for block, offset in changed}
        assert sum(end - begin for begin, end in writes) == 8 * count == 8 * len(places)
        assert all(any(begin <= at < end for begin, end in writes) for at in places)
        assert sum(end - begin for begin, end in reads) == 8 * known
        known += count
        expected = [(100 + place, place) for place in range(known)]
        assert tags_of(memory, torch.tensor(blocks), known) == expected


def test_a_page_that_was_loaded_from_another_or_zeroed_is_not_the_requests() -> None:
    memory = pages()
    leave(memory, one_row([2, 5], 0, 6), 1, torch.arange(6))
    leave(memory, one_row([3], 0, 4), 1, torch.arange(50, 54))
    memory[2] = memory[3]
    assert tags_of(memory, torch.tensor([2, 5]), 6)[:2] == [(50, 0), (51, 1)]
    memory[5].zero_()
    assert tags_of(memory, torch.tensor([2, 5]), 6)[4:] == [(-1, -1), (-1, -1)]


def test_what_has_not_landed_touches_nothing() -> None:
    """Slots, blocks and lengths of a copy that is held are any numbers."""
    rows = Rows(
        torch.tensor([-1, 999]), torch.tensor([[77]]), torch.tensor([3]), torch.tensor([0, 2])
    )
    memory = pages()
    assert page_bytes(memory, rows, 1) == ((), ())
    leave(memory, rows, 1, torch.arange(2))
    assert not memory.any()
    assert list(rows._replace(starts=torch.tensor([5, 2])).spans(1)) == []


def test_a_wrong_tag_is_a_finding_with_the_request_and_the_place() -> None:
    watch = RunnerWatch(engine_session())
    watch.seen.append((4, TAGS, {"rows": ["A", "B"], "tags": [[-1, 0, 0], [7, 99, 3]]}))
    [found] = find_wrong(watch)
    assert (found.step, found.what, found.used) == (4, "page of request B", [7, 99, 3])


def test_a_copy_is_made_when_it_is_handed_over() -> None:
    """As by a thread that is at once awake; the loop is the engine's own, and ends with None."""
    done: list[Any] = []
    queue = HandedJobs()

    def loop(jobs: HandedJobs, name: str) -> None:
        while (job := jobs.get()) is not None:
            done.append((name, job))

    thread = HandedWorker(target=loop, args=(queue, "copies"), daemon=True)
    thread.start()
    queue.put(1)
    assert done == [("copies", 1)]
    queue.put(2)
    queue.put(None)
    thread.join(timeout=1.0)
    assert done == [("copies", 1), ("copies", 2)]


@pytest.mark.parametrize(
    "metadata",
    [
        SimpleNamespace(
            store_gpu_blocks=[4, 5], store_cpu_blocks=[0, 1],
            load_gpu_blocks=[7], load_cpu_blocks=[1],
        ),
        SimpleNamespace(
            store_jobs={1: SimpleNamespace(
                src_spec=SimpleNamespace(block_ids=[4]), dst_spec=SimpleNamespace(block_ids=[0])
            ), 2: SimpleNamespace(
                src_spec=SimpleNamespace(block_ids=[5]), dst_spec=SimpleNamespace(block_ids=[1])
            )},
            load_jobs={3: SimpleNamespace(
                src_spec=SimpleNamespace(block_ids=[1]), dst_spec=SimpleNamespace(block_ids=[7])
            )},
        ),
    ],
)  # fmt: skip
def test_transfers_are_counted_as_the_scheduler_asks_for_them(metadata: Any) -> None:
    watch = RunnerWatch(engine_session())
    watch_transfers(watch, SimpleNamespace(kv_connector_metadata=metadata))
    watch_transfers(watch, SimpleNamespace())
    assert (watch.counters["saves"], watch.counters["loads"]) == (2, 1)
    [(_, name, values)] = watch.inner
    assert name == "transfers" and values["loads"] == [[7, 1]]


def connected(kind: ConnectorKind, mode: StateMode = StateMode.ALIGN) -> Cell:
    return Cell(release="1.0", runner=ModelRunner.V2, mode=mode, connector=kind)


def test_a_connector_is_named_and_asked_for() -> None:
    cell = connected(ConnectorKind.SIMPLE)
    assert cell.settings == ("v2", "align", "connector-simple")
    assert cell.command[-1] == "--connector simple"
    requests = (Request(name="A", arrive=0, prompt=(1, 2), max_tokens=2),)
    scenario = Scenario(name="s", title="t", requests=requests, expect=Expect(loads=1))
    assert cell.cannot_run(scenario) == ""
    assert "--connector simple" in connected(ConnectorKind.NONE).cannot_run(scenario)
    unkept = connected(ConnectorKind.SIMPLE, StateMode.NONE)
    assert "--cache-mode align" in unkept.cannot_run(scenario)
    captured = Cell(
        release="1.0",
        runner=ModelRunner.V1,
        mode=StateMode.ALIGN,
        connector=ConnectorKind.OFFLOADING,
        graphs=CaptureMode.FULL,
    )
    assert "--graphs none" in captured.cannot_run(scenario)


def test_a_pool_that_is_made_for_no_drafts_is_left_out_with_drafts() -> None:
    scenario = load_for("vLLM", SCRIPTS / "host_load_into_aborted_blocks.toml")
    cell = connected(ConnectorKind.SIMPLE)
    assert "fewer blocks than 3 drafts need" in cell.cannot_run(scenario)
    assert msgspec.structs.replace(cell, drafts=0).cannot_run(scenario) == ""
    own = (scenario.name, "host_load_fails")
    others = [path for path in SCRIPTS.glob("host_*.toml") if path.stem not in own]
    assert len(others) == 5
    assert all(cell.cannot_run(load_for("vLLM", path)) == "" for path in others)


def test_loads_that_have_ended_are_told_to_have_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs: Any = ModuleType("vllm.v1.outputs")
    outputs.KVConnectorOutput = make_dataclass("KVConnectorOutput", ["failed_recving"])
    monkeypatch.setitem(sys.modules, "vllm.v1.outputs", outputs)
    heard: list[Any] = []
    scheduler = SimpleNamespace(update_from_output=lambda scheduled, output: heard.append(output))
    watch, cut = RunnerWatch(engine_session()), list[str]()
    fail_loads(watch, scheduler, ConnectorKind.SIMPLE, cut.append)
    told = SimpleNamespace(finished_recving={"R-0123abcd"}, failed_recving=set())
    scheduler.update_from_output(None, SimpleNamespace(kv_connector_output=told))
    assert told.failed_recving == set() and cut == []
    fail_loads(watch, scheduler, ConnectorKind.FAILING, cut.append)
    for each in (told, None):
        scheduler.update_from_output(None, SimpleNamespace(kv_connector_output=each))
    assert told.failed_recving == {"R-0123abcd"} and cut == ["R-0123abcd"] and len(heard) == 3
    assert watch.counters["lost_loads"] == 1
    outputs.KVConnectorOutput = make_dataclass("KVConnectorOutput", ["finished_recving"])
    with pytest.raises(RuntimeError, match="do not say"):
        fail_loads(watch, scheduler, ConnectorKind.FAILING, cut.append)


def test_loads_that_fail_are_a_connectors() -> None:
    fails = load_for("vLLM", SCRIPTS / "host_load_fails.toml")
    ends = load_for("vLLM", SCRIPTS / "host_prefix_hit.toml")
    failing = connected(ConnectorKind.FAILING)
    assert failing.cannot_run(fails) == "" and "--connector simple" in failing.cannot_run(ends)
    assert "--connector failing" in connected(ConnectorKind.SIMPLE).cannot_run(fails)
