"""Inside which operators of torch's CUDA dispatch the host waits, with which arguments.

    python reports/interposer/implicit_syncs.py [--device virtual|cuda] [--jobs N] TABLE.json

Adds the installed torch to the table (`harness/racegate/interpose/kernels/waiting.json`). The calls
are those of torch's own operator tests (`op_db`, which needs the package expecttest), backward
passes included, and those of `waiting_calls.py`. What torch asks of the runtime inside each is
noted: a wait, and launches after the last one. On a GPU an idling kernel stands in front of each
call, and a call has waited if that is complete when it returns; each is made twice, after once for
warmth, and counts if both have waited. On the virtual runtime launches are skipped, and what is
read back is zero. A call that ends its process is named and left out.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch

from racegate.interpose.build import build_forward, build_library, find_toolkit
from racegate.interpose.device.library import CallKind, Library
from racegate.interpose.gpu.forward import ForwardLibrary
from racegate.interpose.gpu.kernels import NumberCalls
from racegate.interpose.kernels.operators import Operator, describe, device_operators
from racegate.scenario.untrusted.files import write_json

sys.path.insert(0, str(Path(__file__).parent))
from waiting_calls import CALLS

IDLE_CYCLES = 8_000_000  # about 4 ms
SAMPLES = 3
SHOWN_MAX = 6
CALL_LIMIT_S = 20  # a call that takes longer hangs
WAITS = (CallKind.EVENT_SYNC, CallKind.STREAM_SYNC, CallKind.DEVICE_SYNC)
WORK = (CallKind.LAUNCH, CallKind.COPY, CallKind.SET)


class Call(NamedTuple):
    """One call of an operator. has_waited: the host; has_more: launches followed its last wait;
    has_asked: for the wait, the runtime (not a library past it, or a host that was slow)
    """

    has_waited: bool
    has_more: bool
    has_asked: bool
    shown: str


class Measure:
    """Torch's CUDA kernels, and what each asks of the runtime. found: calls by operator"""

    def __init__(self, library: Library) -> None:
        self.found: dict[str, list[Call]] = defaultdict(list)
        self.is_on = False
        self._forward = library if isinstance(library, ForwardLibrary) else None
        self._asked: list[int] = []
        self._depth = 0
        self._number_calls = NumberCalls()
        self._registrations = torch.library.Library("aten", "IMPL")
        library.listen(self._answer)

    def _answer(self, kind: int, a: int, b: int, c: int, d: int, name: bytes) -> int:
        self._asked.append(kind)
        if kind == CallKind.UNMODELLED:
            os.write(2, b"not modelled: " + name + b"\n")
        return self._forward is None and kind == CallKind.LAUNCH

    def register(self) -> None:
        extra = [describe(name) for name in ("aten::copy_", "aten::_local_scalar_dense")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for operator in (*device_operators(), *extra):
                original = torch.library.get_kernel(operator.name, "CUDA")
                kernel = self._measured(operator, original)
                self._registrations.impl(
                    operator.name, kernel, "CUDA", with_keyset=True, allow_override=True
                )

    def _measured(self, operator: Operator, original: Any) -> Any:
        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            def run() -> Any:
                return self._number_calls.call(operator, original, keyset, args, kwargs)

            if self._depth or not self.is_on:
                return run()
            self._depth += 1
            try:
                result, *seen = self._watched(run)
            finally:
                self._depth -= 1
            self.found[operator.name].append(Call(*seen, _shown(args, kwargs)))
            return result

        return kernel

    def _watched(self, run: Callable[[], Any]) -> tuple[Any, bool, bool, bool]:
        forward = self._forward
        if forward is not None:
            torch.cuda.synchronize()
            torch.cuda._sleep(IDLE_CYCLES)
            idle = forward.mark(torch.cuda.current_stream().cuda_stream)
        start = len(self._asked)
        result = run()
        asked = self._asked[start:]
        waits = [at for at, kind in enumerate(asked) if kind in WAITS]
        has_waited = bool(waits)
        if forward is not None:
            has_waited = forward.is_complete(idle)
            forward.wait_mark(idle)
            torch.cuda.synchronize()
        del self._asked[:]
        last = waits[-1] if waits else -1
        has_more = any(kind in WORK for kind in asked[last + 1 :])
        return result, has_waited, has_more, bool(waits)


def _shown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    def show(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            kind = str(value.dtype).removeprefix("torch.")
            return f"{value.device.type} {kind}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(map(show, value[:4]))})"
        return repr(value)[:20]

    named = [f"{name}={show(value)}" for name, value in kwargs.items() if value is not None]
    return ", ".join([*map(show, args), *named])


def _sample_calls(op: Any) -> Iterator[Callable[[], object]]:
    """Functions that make one sample call each, with what follows backwards."""
    dtypes = op.supported_dtypes("cuda")
    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype in dtypes:
            break
    else:
        return
    with_grad = dtype == torch.float32 and op.supports_autograd
    samples = op.sample_inputs("cuda", dtype, requires_grad=with_grad)
    for sample in itertools.islice(samples, SAMPLES):

        def call(sample: Any = sample) -> None:
            result = op(sample.input, *sample.args, **sample.kwargs)
            first = result[0] if isinstance(result, (list, tuple)) and len(result) else result
            if isinstance(first, torch.Tensor) and first.requires_grad:
                first.backward(torch.ones_like(first))

        yield call


def _entries() -> dict[str, Callable[[], Iterator[Callable[[], object]]]]:
    """By name, what yields calls."""
    op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    found: dict[str, Any] = {}
    for name, call in CALLS.items():
        found[f"ours/{name}"] = lambda call=call: iter([call])
    for op in op_db:
        found[f"{op.name}/{op.variant_test_name}"] = lambda op=op: _sample_calls(op)
    return found


def _measure(names: list[str], answers: Connection, *, is_real: bool) -> None:
    """In a process of its own: a message as each entry begins, and one with what it gave."""
    torch.cuda._is_in_bad_fork = lambda: False  # type: ignore[attr-defined]
    torch._C._set_cudnn_enabled(False)
    path = Path(os.environ["LD_PRELOAD"].partition(":")[0])
    library = ForwardLibrary(path) if is_real else Library(path)
    measure = Measure(library)
    measure.register()
    torch.zeros(1, device="cuda")
    entries = _entries()
    for name in names:
        measure.found.clear()
        list(library.drain())
        failed = ""
        try:
            for call in entries[name]():
                _call_it(measure, call, is_real=is_real)
        except Exception as error:  # noqa: BLE001  a sample of torch's own that fails is said and left
            failed = f"{type(error).__name__}: {str(error)[:80]}"
        finally:
            measure.is_on = False
        answers.send((name, dict(measure.found), failed))
    answers.send(("", None, ""))


def _call_it(measure: Measure, call: Callable[[], object], *, is_real: bool) -> None:
    """Twice on a GPU, after once for warmth."""
    if is_real:
        call()
    measure.is_on = True
    before = {name: len(calls) for name, calls in measure.found.items()}
    try:
        call()
        if is_real:
            middle = {name: len(calls) for name, calls in measure.found.items()}
            call()
            _join_twins(measure, before, middle)
    finally:
        measure.is_on = False


def _join_twins(measure: Measure, before: dict[str, int], middle: dict[str, int]) -> None:
    """Two measured calls become one, that waited if both did."""
    for name, calls in measure.found.items():
        start, half = before.get(name, 0), middle.get(name, before.get(name, 0))
        first, second = calls[start:half], calls[half:]
        if len(first) == len(second):
            calls[start:] = [
                Call(a.has_waited and b.has_waited, a.has_more or b.has_more, a.has_asked, a.shown)
                for a, b in zip(first, second, strict=True)
            ]


class _Slice:
    """Some entries, and the process that goes through them; another takes its place if it ends."""

    def __init__(self, names: list[str], *, is_real: bool) -> None:
        self.left, self.is_real = names, is_real
        self.found: dict[str, list[Call]] = defaultdict(list)
        self.failed: list[str] = []
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn" if self.is_real else "fork")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(  # type: ignore[attr-defined]
            target=_measure,
            args=(self.left, theirs),
            kwargs={"is_real": self.is_real},
            daemon=True,
        )
        self._process.start()
        theirs.close()
        self._heard_s = time.monotonic() + 60 * self.is_real  # torch is imported first

    def take(self) -> bool:
        """One message, if there is one; whether more will come."""
        try:
            if self.connection.poll(0.05):
                name, found, failed = self.connection.recv()
                return self._taken(name, found, failed)
            is_gone = time.monotonic() - self._heard_s > CALL_LIMIT_S
            is_gone = is_gone or not self._process.is_alive()
        except (EOFError, ConnectionError):
            is_gone = True
        if is_gone:
            self._process.kill()
            self.failed.append(f"{self.left[0]}: it ended its process, or did not end")
            self.left = self.left[1:]
            if self.left:
                self._start()
        return bool(self.left)

    def _taken(self, name: str, found: Any, failed: str) -> bool:
        self._heard_s = time.monotonic()
        if found is not None:
            self.left = self.left[1:]
            for operator, calls in found.items():
                self.found[operator] += calls
            if failed:
                self.failed.append(f"{name}: {failed}")
        return bool(name)


def _row(calls: list[Call]) -> list[Any]:
    """As `waiting.Row` has it."""
    waited = [call for call in calls if call.has_waited]
    if not any(call.has_asked for call in waited) and 2 * len(waited) < len(calls):
        waited = []  # a host that was slow, or a library that was loaded
    more = sum(call.has_more for call in waited)
    shown = [
        sorted({call.shown for call in calls if (call in waited) is has})[:SHOWN_MAX]
        for has in (True, False)
    ]
    return [len(calls), len(waited), more, *shown]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("virtual", "cuda"), default="virtual")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds; what is left is said")
    parser.add_argument("table")
    options = parser.parse_args()
    is_real = options.device == "cuda"
    toolkit = find_toolkit()
    shared = (build_forward if is_real else build_library)(toolkit)
    if os.environ.get("LD_PRELOAD") != str(shared):
        environment = {**os.environ, "LD_PRELOAD": str(shared), "CUDA_VISIBLE_DEVICES": "0"}
        environment["RACEGATE_CUDART"] = str(toolkit.runtime)
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    names = list(_entries())
    slices = [_Slice(names[at :: options.jobs], is_real=is_real) for at in range(options.jobs)]
    working, end_s = list(slices), time.monotonic() + options.limit
    while working and time.monotonic() < end_s:
        working = [one for one in working if one.take()]
    found: dict[str, list[Call]] = defaultdict(list)
    for one in slices:
        for name, calls in one.found.items():
            found[name] += calls
    rows = {name: _row(calls) for name, calls in sorted(found.items())}
    row = {
        "torch": str(torch.__version__),
        "device": torch.cuda.get_device_name() if is_real else "virtual",
        "waits": {name: row for name, row in rows.items() if row[1]},
        "silent": [name for name, row in rows.items() if not row[1]],
        "failed": sorted(text for one in slices for text in one.failed),
        "left": sum(len(one.left) for one in slices),
    }
    path = Path(options.table)
    table = json.loads(path.read_text()) if path.exists() else []
    table = [one for one in table if (one["torch"], one["device"]) != (row["torch"], row["device"])]
    write_json(path, [*table, row])
    print(f"{len(rows)} operators, {len(row['waits'])} waited, {len(row['failed'])} failed")


if __name__ == "__main__":
    main()
