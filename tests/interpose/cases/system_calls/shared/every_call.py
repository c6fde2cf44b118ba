"""Every way in which the kernel moves bytes into or out of memory, on half of a page of which the
device writes the first half.
"""

from __future__ import annotations

import ctypes
import os
import platform
import socket
from collections.abc import Callable

import torch

HALF, SIZE = 2048, 64
Call = Callable[[memoryview], None]
libc = ctypes.CDLL(None, use_errno=True)
waited = torch.cuda.synchronize  # what the kernel touched stands where the program does this


class Part(ctypes.Structure):
    """A struct iovec."""

    _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))


def address(part: memoryview) -> ctypes.c_void_p:
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(part)))


def filled() -> int:
    file = os.memfd_create("filled")
    os.write(file, bytes(range(SIZE)))
    os.lseek(file, 0, os.SEEK_SET)
    return file


def stdio(mode: bytes) -> ctypes.c_void_p:
    """A FILE without a buffer of its own: its bytes go straight into the memory."""
    fdopen = libc.fdopen
    fdopen.restype = ctypes.c_void_p
    opened = ctypes.c_void_p(fdopen(filled(), mode))
    libc.setvbuf(opened, None, 2, 0)
    return opened


def pair(kind: int = socket.SOCK_DGRAM) -> tuple[socket.socket, socket.socket]:
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    there.send(bytes(SIZE))
    return here, there


def read(part: memoryview) -> None:
    with os.fdopen(filled(), "rb", buffering=0) as file:
        assert file.readinto(part) == SIZE
    waited()


def readv(part: memoryview) -> None:
    assert os.readv(filled(), [bytearray(8), part]) == SIZE
    waited()


def preadv(part: memoryview) -> None:
    assert os.preadv(filled(), [part], 0) == SIZE
    waited()


def preadv2(part: memoryview) -> None:
    one = Part(address(part).value, SIZE)
    assert libc.preadv2(filled(), ctypes.byref(one), 1, ctypes.c_long(0), 0) == SIZE
    waited()


def write(part: memoryview) -> None:
    assert os.write(filled(), part) == SIZE
    waited()


def writev(part: memoryview) -> None:
    assert os.writev(filled(), [b"head", part]) == SIZE + 4
    waited()


def pwritev(part: memoryview) -> None:
    assert os.pwritev(filled(), [part], 0) == SIZE
    waited()


def recv_into(part: memoryview) -> None:
    here, there = pair()
    assert here.recv_into(part) == SIZE
    waited()
    there.close()


def recvfrom_into(part: memoryview) -> None:
    here, there = pair()
    assert here.recvfrom_into(part)[0] == SIZE
    waited()
    there.close()


def recvmsg_into(part: memoryview) -> None:
    here, there = pair()
    assert here.recvmsg_into([part])[0] == SIZE
    waited()
    there.close()


def send(part: memoryview) -> None:
    here, there = pair()
    assert here.send(part) == SIZE
    waited()
    there.close()


def sendto(part: memoryview) -> None:
    here = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    here.bind(("127.0.0.1", 0))
    assert here.sendto(part, here.getsockname()) == SIZE
    waited()


def sendmsg(part: memoryview) -> None:
    here, there = pair()
    assert here.sendmsg([part]) == SIZE
    waited()
    there.close()


def fread(part: memoryview) -> None:
    assert libc.fread(address(part), 1, SIZE, stdio(b"rb")) == SIZE
    waited()


def fwrite(part: memoryview) -> None:
    assert libc.fwrite(address(part), 1, SIZE, stdio(b"wb")) == SIZE
    waited()


def vmsplice(part: memoryview) -> None:
    _, end = os.pipe()
    one = Part(address(part).value, SIZE)
    assert libc.vmsplice(end, ctypes.byref(one), ctypes.c_ulong(1), 0) == SIZE
    waited()


def process_vm_readv(part: memoryview) -> None:
    other = ctypes.create_string_buffer(SIZE)
    ours, its = Part(address(part).value, SIZE), Part(ctypes.addressof(other), SIZE)
    number = os.getpid()
    moved = libc.process_vm_readv(
        number, ctypes.byref(ours), ctypes.c_ulong(1), ctypes.byref(its), ctypes.c_ulong(1), 0
    )
    assert moved == SIZE
    waited()


def getrandom(part: memoryview) -> None:
    assert libc.getrandom(address(part), ctypes.c_size_t(SIZE), 0) == SIZE
    waited()


def by_number(part: memoryview) -> None:
    number = 63 if platform.machine() == "aarch64" else 0
    assert libc.syscall(ctypes.c_long(number), filled(), address(part), ctypes.c_long(SIZE)) == SIZE
    waited()


CALLS: tuple[Call, ...] = (
    read, readv, preadv, preadv2, write, writev, pwritev, recv_into, recvfrom_into, recvmsg_into,
    send, sendto, sendmsg, fread, fwrite, vmsplice, process_vm_readv, getrandom, by_number,
)  # fmt: skip


def run(offset: int) -> None:
    """All calls on the bytes from `offset` of the page on."""
    device = torch.zeros(HALF, dtype=torch.uint8, device="cuda")
    page = torch.zeros(2 * HALF, dtype=torch.uint8, pin_memory=True)
    for call in CALLS:
        page[:HALF].copy_(device, non_blocking=True)
        call(memoryview(page.numpy())[offset : offset + SIZE])
    print("all calls were made")
