"""Runs one drawn program as a script: `racegate torch run threaded_one.py PROGRAM.json STREAMS`.

The threads come to their statements in the order that the program has: each looks at a plain list
until it is its turn, which orders nothing.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

SIZE = 64


class Run:
    """What the statements work on."""

    def __init__(self, program: dict[str, Any], streams: int) -> None:
        self.threads, self.order = program["threads"], program["order"]
        self.turn = [0]
        self.hosts = [torch.zeros(SIZE, pin_memory=True) for _ in range(2)]
        self.devices = [torch.zeros(SIZE, device="cuda") for _ in range(2)]
        self.streams = [torch.cuda.Stream() for _ in range(streams)]
        self.events = [torch.cuda.Event() for _ in range(2)]
        self.locks = [threading.Lock() for _ in range(2)]
        self.queues: list[queue.Queue[int]] = [queue.Queue() for _ in range(2)]
        self.flags = [threading.Event() for _ in range(2)]
        self.worker = threading.Thread(target=self.run, args=(1,))
        torch.cuda.synchronize()

    def run(self, thread: int) -> None:
        """All statements of a thread, each in its turn."""
        turns = [turn for turn, who in enumerate(self.order) if who == thread]
        for turn, statement in zip(turns, self.threads[thread], strict=True):
            while self.turn[0] != turn:
                time.sleep(0)
            if statement["kind"] == "join":
                self.turn[0] += 1
                self.worker.join()
            elif statement["kind"] == "start":
                self.worker.start()
                self.turn[0] += 1
            else:
                getattr(self, statement["kind"].replace("await", "await_"))(statement)
                self.turn[0] += 1

    def upload(self, one: dict[str, int]) -> None:
        with torch.cuda.stream(self.streams[one["stream"]]):
            self.devices[one["device"]].copy_(self.hosts[one["host"]], non_blocking=True)

    def download(self, one: dict[str, int]) -> None:
        with torch.cuda.stream(self.streams[one["stream"]]):
            self.hosts[one["host"]].copy_(self.devices[one["device"]], non_blocking=True)

    def kernel(self, one: dict[str, int]) -> None:
        with torch.cuda.stream(self.streams[one["stream"]]):
            self.devices[one["device"]].add_(1)

    def write(self, one: dict[str, int]) -> None:
        self.hosts[one["host"]].fill_(one["host"])

    def read(self, one: dict[str, int]) -> None:
        self.hosts[one["host"]].sum()

    def record(self, one: dict[str, int]) -> None:
        self.events[one["event"]].record(self.streams[one["stream"]])

    def make_wait(self, one: dict[str, int]) -> None:
        self.streams[one["stream"]].wait_event(self.events[one["event"]])

    def wait(self, one: dict[str, int]) -> None:
        self.events[one["event"]].synchronize()

    def synchronize(self, one: dict[str, int]) -> None:
        self.streams[one["stream"]].synchronize()

    def lock(self, one: dict[str, int]) -> None:
        self.locks[one["name"]].acquire()

    def unlock(self, one: dict[str, int]) -> None:
        self.locks[one["name"]].release()

    def put(self, one: dict[str, int]) -> None:
        self.queues[one["name"]].put(1)

    def get(self, one: dict[str, int]) -> None:
        self.queues[one["name"]].get()

    def set(self, one: dict[str, int]) -> None:
        self.flags[one["name"]].set()

    def await_(self, one: dict[str, int]) -> None:
        self.flags[one["name"]].wait()


def main() -> None:
    program = json.loads(Path(sys.argv[1]).read_text())
    Run(program, int(sys.argv[2])).run(0)
    torch.cuda.synchronize()


if __name__ == "__main__":
    main()
