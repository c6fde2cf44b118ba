"""Which operators make the host wait for the device, read off torch's own CUDA code.

    python reports/interposer/waiting_table.py harness/racegate/interpose/kernels/waiting.json

Adds the installed torch to the table. Needs expecttest, as torch's own tests do, and no GPU.

Torch's CUDA kernels run on the virtual runtime with every launch skipped and memory full of zeros;
what is noted is whether the runtime was asked to synchronise while an operator ran. The samples are
those of torch's own tests. Says per operator: of how many calls, how many waited. An operator whose
library calls the runtime does not have ends its process and is left out.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from racegate.interpose.build import build_library, find_toolkit
from racegate.interpose.device.library import CallKind, Library

WAITS = (CallKind.EVENT_SYNC, CallKind.STREAM_SYNC, CallKind.DEVICE_SYNC)
SAMPLES_MAX = 24  # of one entry of torch's list
ENTRY_TIMEOUT_S = 30


def measure(library: Library, names: list[str], out: int) -> None:
    """In a process of its own: one line per operator and entry, as long as it lives."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.utils._python_dispatch import TorchDispatchMode

    waits = Counter[str]()
    asked = 0

    def answer(kind: int, *rest: object) -> int:
        nonlocal asked
        asked += kind in WAITS
        return kind == CallKind.LAUNCH

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            before = asked
            try:
                return func(*args, **(kwargs or {}))
            finally:
                waits[func.name()] += asked > before
                calls[func.name()] += 1

    library.listen(answer)
    torch._C._set_cudnn_enabled(False)
    torch.cuda._is_in_bad_fork = lambda: False  # the virtual runtime is memory like any other
    torch.zeros(1, device="cuda")
    by_name = {f"{entry.name}/{entry.variant_test_name}": entry for entry in op_db}
    for name in names:
        entry = by_name[name]
        calls = Counter[str]()
        waits.clear()
        os.write(out, f"{json.dumps([name])}\n".encode())
        signal.alarm(ENTRY_TIMEOUT_S)
        dtype = torch.float32 if torch.float32 in entry.dtypes else next(iter(entry.dtypes))
        try:
            for index, sample in enumerate(entry.sample_inputs("cuda", dtype)):
                if index == SAMPLES_MAX:
                    break
                with Watch():
                    entry(sample.input, *sample.args, **sample.kwargs)
        except Exception as error:  # noqa: BLE001  zeros are no good input: what was noted stands
            print(f"{name}: {type(error).__name__}", file=sys.stderr)
        signal.alarm(0)
        os.write(
            out, f"{json.dumps([name, [[k, n, waits[k]] for k, n in calls.items()]])}\n".encode()
        )


def names_of_all() -> list[str]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [f"{entry.name}/{entry.variant_test_name}" for entry in op_db]


def main() -> None:
    path = Path(sys.argv[1])
    shared = build_library(find_toolkit())
    if os.environ.get("LD_PRELOAD") != str(shared):
        environment = {**os.environ, "LD_PRELOAD": str(shared), "CUDA_VISIBLE_DEVICES": "0"}
        os.execve(sys.executable, [sys.executable, *sys.argv], environment)
    library, left = Library(shared), names_of_all()
    calls, waited = Counter[str](), Counter[str]()
    while left:
        end, out = os.pipe()
        pid = os.fork()
        if pid == 0:
            measure(library, left, out)
            os._exit(0)
        os.close(out)
        before = len(left)
        with os.fdopen(end) as lines:
            for line in lines:
                name, *found = json.loads(line)
                left = left[left.index(name) + 1 :] if name in left else left
                for operator, count, waits in found[0] if found else ():
                    calls[operator] += count
                    waited[operator] += waits
        os.waitpid(pid, 0)
        if len(left) == before:
            raise SystemExit("the measuring process ended before its first operator")
    rows = {name: [waited[name], calls[name]] for name in sorted(calls) if waited[name]}
    import torch

    path.write_text(
        json.dumps({"torch": torch.__version__, "operators": len(calls), "waits": rows}, indent=1)
    )


if __name__ == "__main__":
    main()
