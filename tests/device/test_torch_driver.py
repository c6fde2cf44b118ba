"""TorchDriver without a GPU: its addresses, lengths and order of calls, against stand-ins that do
at once what torch and the CUDA driver would do later.
"""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch

from numpy_backend import numpy_backend
from racegate.check.checker import Checker
from racegate.device.cuda.device import CudaDevice
from racegate.device.cuda.driver import bits_of
from racegate.device.cuda.pacing import Pacing
from racegate.device.cuda.site import CudaSite
from racegate.device.cuda.torch import CudaError, TorchDriver
from racegate.history.finding import Verdict
from racegate_kernels.poison import poison_of
from support import checker


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1


class Flags(IntEnum):
    CU_STREAM_WAIT_VALUE_GEQ = 0


class FakeStream:
    def __init__(self, device: Any) -> None:
        self.cuda_stream = id(self)

    def synchronize(self) -> None: ...
    def wait_event(self, event: Any) -> None: ...


class FakeEvent:
    def record(self, stream: FakeStream) -> None: ...
    def synchronize(self) -> None: ...
    def query(self) -> bool:
        return True


class FakeGraph:
    def __init__(self) -> None:
        self.calls: list[str] = []

    def capture_begin(self, *, capture_error_mode: str) -> None:
        self.calls.append(f"begin {capture_error_mode}")

    def capture_end(self) -> None:
        self.calls.append("end")

    def replay(self) -> None:
        self.calls.append("replay")


class FakeApi:
    """The calls of the CUDA driver API that are used."""

    CUresult = Status
    CUstreamWaitValue_flags = Flags

    def __init__(self) -> None:
        self.waits: list[tuple[int, int, int]] = []
        self.status = Status.CUDA_SUCCESS

    def cuMemcpyAsync(self, target: int, source: int, size: int, stream: int) -> tuple[Status]:
        ctypes.memmove(target, source, size)
        return (self.status,)

    def cuMemsetD32Async(self, target: int, word: int, count: int, stream: int) -> tuple[Status]:
        kind = ctypes.c_uint32 * count
        kind.from_address(target)[:] = [word] * count
        return (self.status,)

    def cuMemsetD16Async(self, target: int, half: int, count: int, stream: int) -> tuple[Status]:
        kind = ctypes.c_uint16 * count
        kind.from_address(target)[:] = [half] * count
        return (self.status,)

    def cuStreamWaitValue32(
        self, stream: int, address: int, value: int, flags: int
    ) -> tuple[Status]:
        self.waits.append((address, value, flags))
        return (self.status,)


def fake_torch() -> SimpleNamespace:
    def empty(size: int, *, dtype: Any, pin_memory: bool = False, device: Any = None) -> Any:
        return torch.empty(size, dtype=dtype)

    cuda = SimpleNamespace(
        set_device=lambda device: None,
        stream=lambda stream: nullcontext(),
        set_stream=lambda stream: None,
        current_stream=FakeStream,
        Stream=FakeStream,
        Event=FakeEvent,
        CUDAGraph=FakeGraph,
    )
    kinds = {name: getattr(torch, name) for name in ("uint8", "int32", "float32", "bfloat16")}
    return SimpleNamespace(cuda=cuda, empty=empty, device=lambda *names: names, **kinds)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def driver(api: FakeApi) -> TorchDriver:
    pytest.importorskip("triton", reason="has wheels for Linux only")
    driver = TorchDriver(fake_torch(), api, 0)
    driver.backend = numpy_backend()
    return driver


@pytest.mark.parametrize("name", ["mtp-drafter", "offload-save-and-load", "float32-hybrid"])
def test_an_engine_on_it_is_right(name: str, driver: TorchDriver) -> None:
    for pacing in Pacing:
        judge = Checker(checker(name).scenario, cuda=CudaSite(driver, pacing=pacing))
        assert judge.run().verdict is Verdict.PROVED


def test_a_latch_is_a_wait_for_its_word(api: FakeApi, driver: TorchDriver) -> None:
    stream = driver.stream()
    words = driver.pinned((8,), np.int32)
    driver.wait_word(stream, words, 3)
    assert api.waits == [(words.ctypes.data + 12, 1, 0)]
    driver.store(words, 3, 7)
    assert words[3] == 7


def test_copies_of_different_lengths_and_failed_calls_are_errors(
    api: FakeApi, driver: TorchDriver
) -> None:
    stream = driver.stream()
    host, memory = driver.pinned((2, 4), np.uint32), driver.memory((2, 4), np.uint32)
    with pytest.raises(AssertionError, match="16 bytes to 32"):
        driver.copy(stream, memory, host[1])
    api.status = Status.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(CudaError, match="cuMemcpyAsync failed"):
        driver.copy(stream, memory, host)


def test_a_capture_is_rehearsed_before_it_begins(driver: TorchDriver) -> None:
    done: list[str] = []
    graph = driver.capture(lambda: done.append("work"), rehearsal=lambda: done.append("rehearsal"))
    assert done == ["rehearsal", "work"]
    driver.replay(driver.stream(), graph)
    assert graph.calls == ["begin thread_local", "end", "replay"]


def test_streams_are_kept_from_run_to_run(driver: TorchDriver) -> None:
    first = {driver.stream().cuda_stream for _ in range(5)}
    driver.begin()
    assert {driver.stream().cuda_stream for _ in range(5)} == first


@pytest.mark.parametrize("count", [1, 2, 7, 8])
def test_short_elements_take_two_bytes_and_fill_to_the_last(
    count: int, driver: TorchDriver
) -> None:
    stream, dtype = driver.stream(), np.dtype(ml_dtypes.bfloat16)
    host, memory = driver.pinned((count,), dtype), driver.memory((count,), dtype)
    behind = driver.memory((1,), np.int32)
    behind.fill_(5)
    assert (memory.dtype, memory.nbytes, host.nbytes) == (torch.bfloat16, 2 * count, 2 * count)
    driver.fill(stream, memory, bits_of(poison_of(dtype), dtype))
    driver.copy(stream, host, memory)
    assert memory.isnan().all() and np.isnan(host.astype(np.float32)).all()
    assert behind.tolist() == [5]


def test_constants_are_staged_in_pieces(
    driver: TorchDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("racegate.device.cuda.staging.STAGE_BYTES", 32)
    device = CudaDevice(("compute",), driver)
    for dtype in (np.int32, np.float32, ml_dtypes.bfloat16):
        values = np.arange(51).reshape(17, 3).astype(dtype)
        constant: Any = device.constant("values", values)
        assert constant.shape == (17, 3) and constant.dtype == np.dtype(dtype)
        assert constant.storage.tensor.to(torch.int64).tolist() == values.astype(int).tolist()
        assert len(device._staging._pinned) <= 32
    device.close()
