"""What `operators.py` runs on the virtual device: torch's own samples of operators, LOW to HIGH.

MODE reads: a stream writes an argument, and the operator reads it on another without a wait.
MODE writes: a stream reads what the operator then writes on another: in place, and by `out=`.
MODE memory: two threads call the operator in turn and use the same memory one after the other;
    nothing orders them but torch's allocator.

Each call of reads and writes stands in a function of its own name. FILE gets all names, with the
operator: of those that ran and have to be a conflict, and of what torch itself refused.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.testing._internal.common_methods_invocations import op_db

warnings.simplefilter("ignore")
SAMPLES = 2
# Their results are memory that nobody has written; the others have a layout that is not modelled.
NOT_ASKED = ("empty", "sparse", "attention_forward")
READS = """def {name}(call, given, args, kwargs, asked, side):
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        asked.{touch}
    for made in tensors(call(given, *args, **kwargs)):
        made.clone()
    torch.cuda.synchronize()
"""
WRITES = """def {name}(call, given, args, kwargs, asked, side):
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        asked.clone()
    call(given, *args, **kwargs)
    torch.cuda.synchronize()
"""


class Case(NamedTuple):
    """A call of an operator with a sample, and the tensor that another stream touches."""

    name: str
    operator: str
    call: Any
    sample: Any
    options: dict[str, Any]
    asked: torch.Tensor


def tensors(value: Any) -> list[torch.Tensor]:
    """The dense tensors on the device in an argument or a result that have elements."""
    if isinstance(value, torch.Tensor):
        is_asked = value.is_cuda and value.numel() > 0 and value.layout is torch.strided
        return [value] if is_asked else []
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [one for each in value for one in tensors(each)]
    return []


def sampled(low: int, high: int) -> list[tuple[str, Any, Any]]:
    """Name, operator and sample, of all that take float32."""
    found = []
    for number, operator in enumerate(op_db[low:high], low):
        is_left_out = any(word in operator.name for word in NOT_ASKED)
        if is_left_out or torch.float32 not in operator.supported_dtypes("cuda"):
            continue
        samples = operator.sample_inputs("cuda", torch.float32, requires_grad=False)
        for place, sample in zip(range(SAMPLES), samples, strict=False):
            found.append((f"of_{number}_{place}", operator, sample))
    return found


def read_cases(name: str, operator: Any, sample: Any) -> list[Case]:
    given = tensors([sample.input, sample.args, sample.kwargs])[:4]
    return [
        Case(f"{name}_{place}", operator.name, operator.op, sample, sample.kwargs, one)
        for place, one in enumerate(given)
    ]


def write_cases(name: str, operator: Any, sample: Any) -> list[Case]:
    cases, call, options = [], operator.op, sample.kwargs
    if operator.inplace_variant is not None and tensors(sample.input):
        own = operator.inplace_variant
        cases.append(Case(f"{name}_in_place", operator.name, own, sample, options, sample.input))
    if operator.supports_out:
        made = call(sample.input, *sample.args, **options)
        if isinstance(made, torch.Tensor) and tensors(made):
            output = torch.empty_like(made)
            options = {**options, "out": output}
            cases.append(Case(f"{name}_out", operator.name, call, sample, options, output))
    return cases


def run_cases(low: int, high: int, mode: str) -> dict[str, Any]:
    template, cases_of = (READS, read_cases) if mode == "reads" else (WRITES, write_cases)
    side, ran, refused = torch.cuda.Stream(), [], []
    for name, operator, sample in sampled(low, high):
        try:
            cases = cases_of(name, operator, sample)
        except Exception as error:  # noqa: BLE001  of any kind
            refused.append((name, operator.name, repr(error)[:80]))
            continue
        for case in cases:
            touch = "logical_or_(asked)" if case.asked.dtype is torch.bool else "mul_(1)"
            space: dict[str, Any] = {"torch": torch, "tensors": tensors}
            exec(compile(template.format(name=case.name, touch=touch), __file__, "exec"), space)
            try:
                sample = case.sample
                arguments = (case.call, sample.input, sample.args, case.options)
                space[case.name](*arguments, case.asked, side)
                ran.append((case.name, case.operator))
            except Exception as error:  # noqa: BLE001  of any kind
                refused.append((case.name, case.operator, repr(error)[:80]))
                torch.cuda.synchronize()
    return {"ran": ran, "refused": refused}


def run_threads(low: int, high: int) -> dict[str, Any]:
    samples = [sampled(low, high), sampled(low, high)]
    torch.cuda.synchronize()
    turn, ran, refused = [0], [], []

    def work(number: int) -> None:
        for place, (name, operator, sample) in enumerate(samples[number]):
            while turn[0] != 2 * place + number:  # no edge: nobody sees it
                time.sleep(0)
            try:
                operator.op(sample.input, *sample.args, **sample.kwargs)
                ran.append((name, operator.name))
            except Exception as error:  # noqa: BLE001  of any kind
                refused.append((name, operator.name, repr(error)[:80]))
            turn[0] += 1

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"ran": ran, "refused": refused}


mode, low, high, file = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
done = run_threads(low, high) if mode == "memory" else run_cases(low, high, mode)
file.write_text(json.dumps({**done, "operators": len(op_db)}))
