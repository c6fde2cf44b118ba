"""Touches of pinned memory that nobody reports: what is seen of them, and what ends the run."""

from __future__ import annotations

import ctypes
import subprocess
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuda_torch import needs_cuda_torch
from racegate.interpose.device.kept import (
    ELEMENT,
    RUNS_MAX,
    KeptMemory,
    changed_ranges,
    is_shared_mapping,
    peek,
)
from racegate.order.memory import Access
from warmed import Warmth, run_command

# ---- copies of bytes


@given(st.binary(min_size=1, max_size=300), st.data())
def test_changed_ranges_are_the_bytes_that_differ(before: bytes, data: st.DataObject) -> None:
    places = data.draw(st.sets(st.integers(0, len(before) - 1)))
    now = bytes(byte ^ (index in places) for index, byte in enumerate(before))
    found = changed_ranges(1000, before, now)
    covered = {at - 1000 for low, high in found for at in range(low, high)}
    assert places <= covered
    if covered != places:
        assert len(places) > RUNS_MAX
        for place in covered - places:
            assert any(0 < place - at < ELEMENT for at in places)
            assert any(0 < at - place < ELEMENT for at in places)


def test_memory_is_read_as_it_is_and_not_where_there_is_none() -> None:
    data = bytearray(b"0123456789")
    view = memoryview(data)
    address = address_of(view)
    assert peek(address + 2, address + 5) == b"234"
    assert peek(4096, 4200) is None
    assert not is_shared_mapping(address)


def address_of(view: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


def kept(data: bytearray, number: int = 1) -> tuple[KeptMemory, int]:
    """KeptMemory that keep all of data for an operation of lane 1."""
    address = address_of(memoryview(data))
    memory = KeptMemory()
    assert memory.add(address, address + len(data), Access(1, 1, number, "h2d@x:f#1", ()))
    return memory, address


def test_a_change_is_found_when_the_host_has_waited_and_once() -> None:
    data = bytearray(64)
    memory, address = kept(data, number=3)
    data[7] = 1
    assert memory.arrive([0, 2]) == []
    (found,) = memory.arrive([0, 3])
    assert found.changed() == ((address + 7, address + 8),)
    assert memory.arrive([0, 3]) == []


def test_what_an_allocator_found_complete_is_not_compared() -> None:
    data = bytearray(64)
    memory, _ = kept(data, number=3)
    data[7] = 1
    assert len(memory.give_up([0, 3])) == 1
    assert (memory.arrive([0, 3]), memory.end()) == ([], [])


def test_at_the_end_everything_is_compared() -> None:
    data = bytearray(64)
    memory, _ = kept(data, number=3)
    data[7] = 1
    assert len(memory.end()) == 1


def test_a_reported_write_changes_what_is_expected_and_nothing_beside_it() -> None:
    data = bytearray(64)
    memory, address = kept(data)
    memory.forget(address + 16, address + 32)
    data[16:32] = bytes(range(16))
    assert memory.arrive([0, 1]) == []
    memory, address = kept(data)
    memory.forget(address + 16, address + 32)
    data[15] = data[40] = 9
    found = memory.arrive([0, 1])
    assert sorted(low for one in found for low, _ in one.changed()) == [address + 15, address + 40]


def test_more_than_there_is_room_for_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptMemory, "BYTES_MAX", 100)
    data = bytearray(64)
    memory, address = kept(data)
    access = Access(1, 1, 1, "h2d@x:f#1", ())
    other = bytearray(64)
    low = address_of(memoryview(other))
    assert not memory.add(low, low + 64, access)
    assert memory.add(address, address + 64, access)  # in the place of the copy before


# ---- whole programs

REGISTERED = """
    import ctypes, numpy as np, torch
    array = np.ones({count}, dtype=np.float32)
    torch.cuda.check_error(
        torch.cuda.cudart().cudaHostRegister(array.ctypes.data, array.nbytes, 0)
    )
    target = torch.from_numpy(array).to("cuda", non_blocking=True)
    {wait}
    {write}
    torch.cuda.synchronize()
"""
WRITE = "ctypes.memset(array.ctypes.data + 8, 0, 4)"
WAIT = "torch.cuda.current_stream().synchronize()"
PINNED = """
    import ctypes, torch

    def read(at):
        ctypes.string_at(host.data_ptr() + 4 * at, 8)

    def write(count):
        new = torch.ones(count) * 3
        ctypes.memmove(host.data_ptr(), new.data_ptr(), 4 * count)

    host = torch.zeros(1024, pin_memory=True)
    one = torch.ones(512, device="cuda")
    host[512:].copy_(one, non_blocking=True)
    {touch}
    torch.cuda.synchronize()
"""
SHARED = """
    import mmap, os, numpy as np, torch
    shared = np.frombuffer(mmap.mmap(-1, 8192), dtype=np.float32)
    torch.cuda.check_error(
        torch.cuda.cudart().cudaHostRegister(shared.ctypes.data, shared.nbytes, 0)
    )
    {upload}
    pid = os.fork()
    if pid == 0:
        shared[3] = 5
        os._exit(0)
    os.waitpid(pid, 0)
    {after}
    torch.cuda.synchronize()
"""
UPLOAD = 'target = torch.from_numpy(shared).to("cuda", non_blocking=True)'


def start(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(textwrap.dedent(text))
    return run_command("torch", "run", "script.py", cwd=folder, warmth=Warmth.PROGRAMS)


@needs_cuda_torch
def test_a_write_that_nobody_reported_ends_the_run_with_its_buffer_and_both_places(
    tmp_path: Path,
) -> None:
    done = start(tmp_path, REGISTERED.format(count=64, wait="", write=WRITE))
    assert done.returncode == 3, done.stderr
    assert "not modelled: a write to array (<module>) that nobody reported" in done.stderr
    assert "2 of 256 bytes, from byte 10 on, since h2d@script.py:<module>#1 (" in done.stderr
    assert done.stderr.rstrip().endswith("script.py:10 in <module>")
    text = REGISTERED.format(count=64, wait="", write=WRITE).replace("torch.cuda.synchronize()", "")
    never = start(tmp_path, text)
    assert never.returncode == 3, never.stderr
    assert never.stderr.rstrip().endswith("noticed when the program ended")
    ordered = start(tmp_path, REGISTERED.format(count=64, wait=WAIT, write=WRITE))
    assert (ordered.returncode, "no conflict" in ordered.stderr) == (0, True), ordered.stderr


@needs_cuda_torch
def test_whole_pages_of_registered_memory_show_who_writes(tmp_path: Path) -> None:
    done = start(tmp_path, REGISTERED.format(count=4096, wait="", write="array[:] = 2"))
    assert done.returncode == 1, done.stderr
    assert "array (<module>): " in done.stderr
    assert "host write (raw) writes it on the host" in done.stderr


@needs_cuda_torch
def test_another_process_that_writes_under_an_upload_ends_the_run(tmp_path: Path) -> None:
    done = start(tmp_path, SHARED.format(upload=UPLOAD, after=""))
    assert done.returncode == 3, done.stderr
    assert "a write to shared (<module>) that nobody reported" in done.stderr
    ordered = start(tmp_path, SHARED.format(upload="", after=UPLOAD))
    assert ordered.returncode == 0, ordered.stderr


@needs_cuda_torch
@pytest.mark.parametrize(
    ("touch", "code"),
    [
        # It begins where nothing is in flight, and goes on to where the download lands.
        ("write(1024)", 1),
        ("write(512)", 0),
        # The first touch opens the page, the device's next operation closes it again.
        ("read(0); one.add(1); read(512)", 1),
        ("read(0); one.add(1); read(0)", 0),
        # So does an access that is reported.
        ("host[0].item(); one.add(1); read(512)", 1),
        # An upload of the other half of a page leaves it closed to reads of this one.
        ("host[:512].to('cuda', non_blocking=True); read(512)", 1),
    ],
)
def test_what_is_seen_of_raw_touches(tmp_path: Path, touch: str, code: int) -> None:
    done = start(tmp_path, PINNED.format(touch=touch))
    assert done.returncode == code, done.stderr
    assert ("(raw)" in done.stderr) == bool(code)
    assert "pinned memory touched below Python" in done.stderr


LATE = """
    import ctypes, torch
    host, one = torch.zeros(1024, pin_memory=True), torch.ones(512, device="cuda")
    asleep, copying = torch.cuda.Stream(), torch.cuda.Stream()
    copying.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(asleep):
        torch.cuda._sleep(1000)
    copying.wait_stream(asleep)
    with torch.cuda.stream(copying):
        host[:512].copy_(one, non_blocking=True)
    asleep.synchronize()
    {touch}
    torch.cuda.synchronize()
    assert host[0].item() == 1.0
"""


@needs_cuda_torch
@pytest.mark.parametrize(("touch", "code"), [("", 0), ("ctypes.string_at(host.data_ptr(), 8)", 1)])
def test_a_copy_that_lands_late_is_no_touch_of_the_host(
    tmp_path: Path, touch: str, code: int
) -> None:
    """It lands when the host has waited for another stream, and its page is closed again then."""
    done = start(tmp_path, LATE.format(touch=touch))
    assert (done.returncode, "(raw)" in done.stderr) == (code, bool(code)), done.stderr
