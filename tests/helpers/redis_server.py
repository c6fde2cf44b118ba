"""A real server for stores: Redis or Valkey on loopback, in a folder that it keeps its data in."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import which

import pytest

NAMES = ("valkey-server", "redis-server")
STARTS_WITHIN_S = 30.0


class RedisServer:
    """One server, which can be killed and started again on the same port and data."""

    def __init__(self, program: str, folder: Path, options: Sequence[str]) -> None:
        self._program = program
        self._folder = folder
        self._options = options
        self.port = _free_port()
        self.start()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Until it listens."""
        port = () if "--tls-port" in self._options else ("--port", str(self.port))
        command = [self._program, *port, "--bind", "127.0.0.1", "--dir", str(self._folder)]
        command += ["--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        given = [option.format(port=self.port) for option in self._options]
        self._process = subprocess.Popen(
            [*command, *given], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + STARTS_WITHIN_S
        while not self._listens():
            assert self._process.poll() is None and time.monotonic() < end, "no server started"

    def kill(self) -> None:
        """As a power cut does."""
        self._process.kill()
        self._process.wait()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=0.1).close()
        except OSError:
            time.sleep(0.01)
            return False
        return True


@contextmanager
def redis_server(folder: Path, *options: str) -> Iterator[RedisServer]:
    """One for a test, or a reason why there is none."""
    pytest.importorskip("redis", reason="no client: pip install 'racegate[campaign]'")
    program = next(filter(None, map(which, NAMES)), None)
    if program is None:
        pytest.skip("no server: apt-get install redis-server (or valkey-server)")
    server = RedisServer(program, folder, options)
    try:
        yield server
    finally:
        server.kill()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])
