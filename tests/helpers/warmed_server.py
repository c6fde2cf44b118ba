"""The process behind `warmed`: imports once, and forks for each command, and for its device.

    python -c ... SOCKET WARMTH

A request is JSON (words, cwd, env) with three streams; the answers are the number of the process,
and what it ended with.
"""

from __future__ import annotations

import array
import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from traceback import print_exc
from typing import Any, NoReturn

REQUEST_BYTES_MAX = 1 << 20
DEVICE = "racegate.interpose.child"
Handlers = dict[int, Any]


class Forked(subprocess.Popen[bytes]):
    """A device: this process once more, in the place of a Python that would import torch."""

    def __init__(self, command: list[str], run: Callable[[], NoReturn]) -> None:
        self.args = command
        self.stdin = self.stdout = self.stderr = None
        self.returncode = None
        self._child_created = True
        self._waitpid_lock = threading.Lock()  # type: ignore[attr-defined]
        self.pid = os.fork()
        if self.pid == 0:
            run()


class Starter:
    """In the place of `subprocess.Popen`, in a command: forks a device, and starts all else."""

    def __init__(self, preloaded: str) -> None:
        self._preloaded = preloaded
        self._popen = subprocess.Popen
        self._files = _open_files()
        self._handlers = _handlers()
        self._finalizers = _finalizers()
        subprocess.Popen = self  # type: ignore[misc, assignment]

    def __call__(self, command: Any, **options: Any) -> Any:
        env = options.get("env") or {}
        if command[1:3] != ["-m", DEVICE] or env.get("LD_PRELOAD") != self._preloaded:
            return self._popen(command, **options)
        return Forked(command, lambda: self._hold_device(command, **options))

    def _hold_device(
        self,
        command: list[str],
        *,
        env: Mapping[str, str],
        pass_fds: Iterable[int],
        process_group: int,
        stdin: Any,
        stdout: Any,
        stderr: Any,
    ) -> NoReturn:
        os.setpgid(0, process_group)
        subprocess.Popen = self._popen  # type: ignore[misc]
        for number, handler in self._handlers.items():
            if signal.getsignal(number) != handler:
                signal.signal(number, handler)
        for made in _finalizers() - self._finalizers:
            made.detach()  # or a program that ends would remove what the command still needs
        nothing = os.open(os.devnull, os.O_RDWR)
        source = nothing if stdin == subprocess.DEVNULL else _number_of(stdin)
        outputs = {1: stdout, 2: stderr}
        given = {to: _number_of(file) for to, file in outputs.items() if file is not None}
        _become(dict(env), {0: source} | given)
        for number in _open_files() - self._files - set(pass_fds):
            with suppress(OSError):
                os.close(number)
        sys.argv = [DEVICE, *command[3:]]
        sys.path[0] = os.getcwd()
        del sys.modules[DEVICE]  # it is run as `__main__`
        _leave(lambda: runpy.run_module(DEVICE, run_name="__main__", alter_sys=True))


def _number_of(file: Any) -> int:
    return file if isinstance(file, int) else int(file.fileno())


def _open_files() -> set[int]:
    return {int(name) for name in os.listdir("/proc/self/fd")}


def _finalizers() -> set[Any]:
    return set(weakref.finalize._registry)  # type: ignore[attr-defined]


def _handlers() -> Handlers:
    return {
        number: signal.getsignal(number)
        for number in signal.valid_signals()
        if signal.getsignal(number) is not None
    }


def _become(env: dict[str, str], streams: dict[int, int]) -> None:
    os.environ.clear()
    os.environ.update(env)
    for target, source in streams.items():
        os.dup2(source, target)


def _leave(main: Callable[[], object]) -> NoReturn:
    """Ends as Python does, but for taking torch apart object by object."""
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001  told as Python tells it
        print_exc()
        code = 1
    if not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


def _import_all(warmth: str) -> None:
    app = import_module("racegate.cli.app")
    for command in app.COMMANDS.values():
        module = import_module(f"racegate.cli.{command.module}")
        app.typer.main.get_command(getattr(module, command.app))
    with suppress(ImportError):  # typer imports these as it reads the first option
        import_module("typer._adapters")
        import_module("pydantic.fields")
    import_module("torch")
    if warmth == "programs":
        import_module(DEVICE)


def _run(asked: dict[str, Any], streams: list[int], preloaded: str) -> NoReturn:
    os.chdir(asked["cwd"])
    _become(asked["env"], dict(enumerate(streams)))
    for stream in streams:
        os.close(stream)
    if preloaded:
        Starter(preloaded)
    sys.argv = ["-c", *asked["words"]]
    _leave(import_module("racegate.cli.start").main)


def serve(asking: socket.socket, preloaded: str) -> None:
    """Until nobody can ask any more."""
    while True:
        request, streams, _, _ = socket.recv_fds(asking, REQUEST_BYTES_MAX, 3)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            asking.close()
            _run(json.loads(request), streams, preloaded)
        for stream in streams:
            os.close(stream)
        asking.sendall(array.array("q", [pid]))
        _, status = os.waitpid(pid, 0)
        asking.sendall(array.array("q", [os.waitstatus_to_exitcode(status)]))


if __name__ == "__main__":
    _import_all(sys.argv[2])
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as own_end:
        serve(own_end, os.environ.pop("LD_PRELOAD", ""))
    os._exit(0)  # there is nothing that has to be taken apart
