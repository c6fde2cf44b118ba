"""What torch says of operators whose operands are on host and device, and what racegate says.

    python reports/interposer/mixed_operands.py [--jobs N] OUT.json          # on a GPU
    python reports/interposer/mixed_operands.py --compare OUT.json           # on the virtual device

On a GPU: the operators of torch's own operator tests (`op_db`, which needs the package expecttest)
that torch dispatches to CUDA and that take several tensors, each with one operand after another on
the host. Then the same calls on the virtual device: whether it raises what torch raises.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from racegate.scenario.untrusted.files import write_json

SAMPLES = 2
LIMIT_S = 50
TEXT_MAX = 160


def described(value: Any) -> Any:
    """As JSON. Raises TypeError for what it cannot tell."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise TypeError("layout")
        return {"t": [value.device.type, str(value.dtype)[6:], list(value.shape)]}
    if isinstance(value, (list, tuple)):
        return [described(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, torch.dtype):
        return {"d": str(value)[6:]}
    raise TypeError(type(value).__name__)


def made(value: Any) -> Any:
    """What `described` tells of: tensors of ones."""
    if isinstance(value, list):
        return [made(item) for item in value]
    if isinstance(value, dict) and "t" in value:
        device, dtype, shape = value["t"]
        return torch.ones(shape, dtype=getattr(torch, dtype)).to(device)
    return getattr(torch, value["d"]) if isinstance(value, dict) else value


def variants(args: list[Any]) -> Iterator[list[Any]]:
    """The arguments with one operand after another on the host."""
    places = [at for at, value in enumerate(args) if isinstance(value, dict) and "t" in value]
    lists = [
        (at, inner)
        for at, value in enumerate(args)
        if isinstance(value, list)
        for inner, item in enumerate(value)
        if isinstance(item, dict) and "t" in item
    ]
    if len(places) + len(lists) < 2:
        return
    for at in places:
        yield [on_host(value) if i == at else value for i, value in enumerate(args)]
    for at, inner in lists[:2]:
        changed = [on_host(v) if i == inner else v for i, v in enumerate(args[at])]
        yield [changed if i == at else value for i, value in enumerate(args)]


def on_host(value: Any) -> Any:
    return {"t": ["cpu", *value["t"][1:]]}


class Calls(TorchDispatchMode):
    """Notes the calls of operators that have a CUDA kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, list[Any]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name()
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, "CUDA") and not kwargs:
            try:
                found = described(list(args))
            except TypeError:
                found = None
            if found is not None:
                self.seen.setdefault(f"{name} {json.dumps(kinds(found))}", [name, found])
        return func(*args, **(kwargs or {}))


def kinds(value: Any) -> Any:
    """What makes two calls alike."""
    if isinstance(value, list):
        return [kinds(item) for item in value[:2]]
    if isinstance(value, dict) and "t" in value:
        return [value["t"][1], min(len(value["t"][2]), 1)]
    return value if value is None or isinstance(value, bool) else type(value).__name__


def operator_of(name: str) -> Any:
    base, _, overload = name.partition("::")[2].partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


def said(name: str, args: list[Any]) -> str:
    """Empty, or the error."""
    try:
        operator_of(name)(*made(args))
    except Exception as error:  # noqa: BLE001  whatever torch raises is the answer
        return f"{type(error).__name__}: {str(error).splitlines()[0][:TEXT_MAX]}"
    return ""


def measure(at: int, of: int, out: str) -> None:
    """In a process of its own: calls and what torch says of them, a line each."""
    op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db
    end_s, known = time.monotonic() + LIMIT_S, set()
    with open(out, "w") as lines:
        for op in op_db[at::of]:
            if time.monotonic() > end_s:
                break
            dtypes = op.supported_dtypes("cuda")
            dtype = torch.float32 if torch.float32 in dtypes else next(iter(dtypes))
            calls = Calls()
            try:
                for sample in itertools.islice(op.sample_inputs("cuda", dtype), SAMPLES):
                    with calls:
                        op(sample.input, *sample.args, **sample.kwargs)
            except Exception as error:  # noqa: BLE001  a sample of torch's own that fails
                print(f"{op.name}: {type(error).__name__}", file=sys.stderr)
            for call, (name, args) in calls.seen.items():
                if call not in known:
                    known.add(call)
                    for changed in variants(args):
                        lines.write(json.dumps([name, changed, said(name, changed)]) + "\n")
                        lines.flush()


def on_gpu(out: Path, jobs: int) -> None:
    context = multiprocessing.get_context("spawn")
    parts = [f"{out}.{at}" for at in range(jobs)]
    running = [
        context.Process(target=measure, args=(at, jobs, part)) for at, part in enumerate(parts)
    ]
    for process in running:
        process.start()
    for process in running:
        process.join()
    calls: dict[str, Any] = {}
    for part in parts:
        for line in Path(part).read_text().splitlines():
            name, args, text = json.loads(line)
            calls.setdefault(f"{name} {json.dumps([kinds(args), args])}", [name, args, text])
        Path(part).unlink()
    facts = {"device": torch.cuda.get_device_name(), "torch": str(torch.__version__)}
    write_json(out, {**facts, "calls": sorted(calls.values(), key=str)})
    refused = sum(bool(text) for _, _, text in calls.values())
    print(f"{len(calls)} calls, torch raises in {refused}")


def compare(path: Path, start: int) -> None:
    """As a program of the virtual device, from the start-th call: a line for each."""
    calls = json.loads(path.read_text())["calls"]
    for at in range(start, len(calls)):
        name, args, *_ = calls[at]
        print(json.dumps([at, said(name, args)]), flush=True)


def on_virtual_device(path: Path) -> None:
    """All calls; one that ends the run is not modelled, and the next run goes on behind it."""
    found = json.loads(path.read_text())
    calls, answers, at = found["calls"], {}, 0
    while at < len(calls):
        command = ["torch", "run", __file__, "--from", str(at), str(path)]
        done = subprocess.run(
            [sys.executable, "-m", "racegate", *command], stdout=subprocess.PIPE, text=True
        )
        for line in done.stdout.splitlines():
            if line.startswith("["):
                last, text = json.loads(line)
                answers[last], at = text, last + 1
        if done.returncode == 3:
            answers[at] = "not modelled"
            at += 1
    result = [[*call[:3], answers.get(i, "not asked")] for i, call in enumerate(calls)]
    alike = sum(bool(text) == bool(answer) for _, _, text, answer in result)
    same = sum(bool(text) and text == answer for _, _, text, answer in result)
    for name, args, text, answer in result:
        if bool(text) != bool(answer):
            print(name, json.dumps(args)[:150], "|", text, "|", answer)
    print(f"{len(result)} calls, {alike} alike, {same} with torch's own words")
    write_json(path, {**found, "torch_of_racegate": str(torch.__version__), "calls": result})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--compare", action="store_true")
    parser.add_argument("--from", dest="start", type=int)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    if options.start is not None:
        compare(options.out, options.start)
    elif options.compare:
        on_virtual_device(options.out)
    else:
        on_gpu(options.out, options.jobs)


if __name__ == "__main__":
    main()
