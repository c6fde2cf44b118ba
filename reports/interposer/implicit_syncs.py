"""Which operators make the host wait, on a real GPU: each runs behind a kernel that idles.

    python reports/interposer/implicit_syncs.py [--jobs N] OUT.json

The calls are those of torch's own operator tests (`op_db`, which needs the package expecttest), the
backward passes included. A call has waited if the idling kernel is complete when it returns; each
is made twice, after once for warmth, and counts if both have waited.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import multiprocessing
import sys
import time
import warnings
from collections import defaultdict
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from racegate.interpose.gpu.kernels import NumberCalls
from racegate.interpose.kernels.operators import Operator, describe, device_operators
from racegate.scenario.untrusted.files import write_json

IDLE_CYCLES = 10_000_000  # about 6 ms
SAMPLES = 3
LIMIT_S = 150
# (they wait for minutes, or end the context)
SKIPPED = ("_segment_reduce",)


class Measure:
    """Torch's CUDA kernels with an idling one in front.

    found: per operator the calls, as (waited, what it was called with)
    """

    def __init__(self) -> None:
        self.found: dict[str, list[tuple[bool, str]]] = defaultdict(list)
        self.is_on = False
        self._depth = 0
        self._number_calls = NumberCalls()
        self._library = torch.library.Library("aten", "IMPL")

    def register(self) -> None:
        extra = [describe(name) for name in ("aten::copy_", "aten::_local_scalar_dense")]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for operator in (*device_operators(), *extra):
                original = torch.library.get_kernel(operator.name, "CUDA")
                kernel = self._measured(operator, original)
                self._library.impl(
                    operator.name, kernel, "CUDA", with_keyset=True, allow_override=True
                )

    def _measured(self, operator: Operator, original: Any) -> Any:
        name = operator.name

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            if self._depth or not self.is_on:
                return self._number_calls.call(operator, original, keyset, args, kwargs)
            self._depth += 1
            try:
                torch.cuda.synchronize()
                torch.cuda._sleep(IDLE_CYCLES)
                idle = torch.cuda.Event()
                idle.record()
                result = self._number_calls.call(operator, original, keyset, args, kwargs)
                self.found[name].append((idle.query(), _shown((*args, *kwargs.values()))))
                torch.cuda.synchronize()
                return result
            finally:
                self._depth -= 1

        return kernel


def _shown(values: Any) -> str:
    def show(value: Any) -> str:
        if isinstance(value, torch.Tensor):
            kind = str(value.dtype).removeprefix("torch.")
            return f"{value.device.type} {kind}{list(value.shape)}"
        if isinstance(value, (list, tuple)):
            return f"({', '.join(map(show, value[:4]))})"
        return repr(value)[:20]

    return ", ".join(map(show, values))


def _calls(op: Any) -> Any:
    """Functions that make one sample call each."""
    dtypes = op.supported_dtypes("cuda")
    for dtype in (torch.float32, torch.int64, torch.bool):
        if dtype in dtypes:
            break
    else:
        return
    with_grad = dtype == torch.float32 and op.supports_autograd
    for sample in itertools.islice(
        op.sample_inputs("cuda", dtype, requires_grad=with_grad), SAMPLES
    ):

        def call(sample: Any = sample) -> None:
            result = op(sample.input, *sample.args, **sample.kwargs)
            first = result[0] if isinstance(result, (list, tuple)) and len(result) else result
            if isinstance(first, torch.Tensor) and first.requires_grad:
                first.backward(torch.ones_like(first))

        yield call


def _slice(at: int, of: int, answers: Connection) -> None:
    """In a process of its own: every of-th operator, from the at-th."""
    op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    measure = Measure()
    measure.register()
    start_s, failed, left = time.perf_counter(), [], 0
    for op in reversed(op_db[at::of]):
        if time.perf_counter() - start_s > LIMIT_S:
            left += 1
            continue
        if op.name in SKIPPED:
            continue
        try:
            for call in _calls(op):
                measure.is_on = False
                call()
                measure.is_on = True
                before = {name: len(calls) for name, calls in measure.found.items()}
                call()
                middle = {name: len(calls) for name, calls in measure.found.items()}
                call()
                _join_twins(measure, before, middle)
        except Exception as error:  # noqa: BLE001  a sample of torch's own that fails is said and left
            failed.append(f"{op.name}: {type(error).__name__}: {str(error)[:80]}")
        finally:
            measure.is_on = False
    answers.send((dict(measure.found), failed, left))


def _join_twins(measure: Measure, before: dict[str, int], middle: dict[str, int]) -> None:
    """Two measured calls become one, that waited if both did."""
    for name, calls in measure.found.items():
        start, half = before.get(name, 0), middle.get(name, before.get(name, 0))
        first, second = calls[start:half], calls[half:]
        if len(first) == len(second):
            calls[start:] = [(a[0] and b[0], a[1]) for a, b in zip(first, second, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("out")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ends = []
    for at in range(options.jobs):
        ours, theirs = context.Pipe()
        process = context.Process(target=_slice, args=(at, options.jobs, theirs), daemon=True)
        process.start()
        theirs.close()
        ends.append(ours)
    found: dict[str, list[tuple[bool, str]]] = defaultdict(list)
    failed: list[str] = []
    left = 0
    for end in ends:
        try:
            calls, wrong, later = end.recv()
        except EOFError:
            failed.append("a process of a slice died")
            continue
        for name, seen in calls.items():
            found[name] += seen
        failed += wrong
        left += later
    operators = {
        name: {
            "calls": len(calls),
            "waited": sum(waited for waited, _ in calls),
            "waited_with": sorted({text for waited, text in calls if waited})[:4],
            "not_with": sorted({text for waited, text in calls if not waited})[:2]
            if any(waited for waited, _ in calls)
            else [],
        }
        for name, calls in sorted(found.items())
    }
    facts = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    result = {**facts, "operators": operators, "failed": failed, "left": left}
    write_json(Path(options.out), result)
    waited = [f"{name} {o['waited']}/{o['calls']}" for name, o in operators.items() if o["waited"]]
    print(f"{len(operators)} operators, {len(failed)} failed, {left} left; waited: {waited}")


if __name__ == "__main__":
    sys.exit(main())
