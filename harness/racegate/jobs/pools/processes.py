"""Workers in processes of this machine, behind pipes. They leave Ctrl-C to their driver, which ends
them, and end by themselves if the driver is gone.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import pickle
import signal
import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import TypeVar

from racegate.jobs.pools.collecting import collect_from_here_on
from racegate.jobs.pools.driver import DrivenPool, GoneError, Ready, said_of
from racegate.jobs.pools.pool import MakeWorker, Task, Worker, ended, worked

T = TypeVar("T")
R = TypeVar("R")


class ProcessHandle:
    """See transport.Handle."""

    def __init__(self, process: SpawnProcess, pipe: Connection, signs: ctypes.c_uint64) -> None:
        self._process = process
        self._signs = signs
        self.pipe = pipe

    def send(self, task: Task[T] | None) -> None:
        """If the worker is gone, `hear` says so too, and how it went."""
        with suppress(OSError):
            self.pipe.send(task)

    def hear(self) -> object:
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            raise GoneError(_how_it_ended(self._process.exitcode)) from None

    def signs(self) -> int:
        """As the process counts them, in memory that both have."""
        return self._signs.value

    def kill(self) -> None:
        """Ends the process."""
        self._process.kill()

    def close(self) -> None:
        """Waits for its end."""
        self._process.join()
        self.pipe.close()


class ProcessTransport:
    """See transport.Transport."""

    def open(self, make: MakeWorker[T, R], number: int) -> ProcessHandle:
        """Starts a process."""
        context = multiprocessing.get_context("spawn")
        pipe, its_end = context.Pipe()
        signs = context.RawValue(ctypes.c_uint64)
        # The maker is read by `_serve`, for with it all is imported that a worker needs.
        arguments = (pickle.dumps(make), number, its_end, signs)
        process = context.Process(
            target=_serve, args=arguments, name=f"worker {number}", daemon=True
        )
        # A worker leaves Ctrl-C to its driver from its first moment, also while it is imported.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        # Or nobody would notice that the worker has closed it.
        its_end.close()
        return ProcessHandle(process, pipe, signs)

    def has_room(self) -> bool:
        """Always: the machine had room for the one that is gone."""
        return True

    def wait(self, handles: Sequence[ProcessHandle], timeout_s: float) -> Sequence[ProcessHandle]:
        """Those whose pipe has something, or is closed."""
        ready = set(map(id, wait([handle.pipe for handle in handles], timeout=timeout_s)))
        return [handle for handle in handles if id(handle.pipe) in ready]

    def close(self) -> None:
        """Nothing is left."""


def process_pool(
    *, silent_s: float | None = None, losses_max: int = 1
) -> DrivenPool[ProcessHandle]:
    """A process for each worker. silent_s, losses_max: see DrivenPool"""
    return DrivenPool(ProcessTransport(), silent_s=silent_s, losses_max=losses_max)


def _how_it_ended(exit_code: int | None) -> str:
    if exit_code is not None and exit_code < 0:
        return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code} (its error is above)"


def _serve(make: bytes, number: int, pipe: Connection, signs: ctypes.c_uint64) -> None:
    """In a worker process: tasks until there are no more, or the driver is gone. make: pickled"""
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    made: list[Worker[object, object]] = []

    def start() -> Ready:
        made.append(pickle.loads(make)(number))
        collect_from_here_on()
        return Ready()

    def say_alive() -> None:
        signs.value += 1

    pipe.send(said_of(start))
    if not made:
        return
    for task in iter(partial(_next_task, pipe), None):
        pipe.send(said_of(partial(worked, made[0], task.content, say_alive)))
    pipe.send(said_of(partial(ended, made[0])))


def _next_task(pipe: Connection) -> Task[object] | None:
    """None if there are no more. Ends the process if the driver is gone."""
    try:
        task: Task[object] | None = pipe.recv()
    except EOFError:
        raise SystemExit(1) from None
    return task


def _end_with_driver() -> None:
    """Ends this process, wherever it is, when the one that started it is gone."""
    driver = multiprocessing.parent_process()
    assert driver is not None
    driver.join()
    os._exit(1)
