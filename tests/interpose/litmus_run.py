"""Runs litmus programs one after the other on the virtual device and tells what was found in each.

    python -m racegate.interpose tests/interpose/litmus_run.py OUT.json [NAME ...]
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import torch
from litmus import registry

from racegate.interpose import observe, recording


def judge(program: registry.Program) -> dict[str, object]:
    """What one program showed."""
    error = ""
    start_s = time.perf_counter()
    with recording() as part:
        try:
            program.run()
        except Exception:  # noqa: BLE001  a program that fails is a defect of the device: report it
            error = traceback.format_exc()
        torch.cuda.synchronize()
    return {
        "name": program.name,
        "pair": program.pair,
        "expected": program.expected.value,
        "observable": program.observable,
        "found": [f"{f.first.label} / {f.second.label}: {f.edge}" for f in part.findings],
        "error": error,
        "seconds": round(time.perf_counter() - start_s, 3),
    }


def main() -> None:
    programs = registry.load()
    registry.observe.bound = lambda name, value: observe(name, value)
    names = sys.argv[2:] or list(programs)
    Path(sys.argv[1]).write_text("")
    with Path(sys.argv[1]).open("a") as out:
        for name in names:
            print(json.dumps({"begin": name}), file=out, flush=True)
            print(json.dumps(judge(programs[name])), file=out, flush=True)


if __name__ == "__main__":
    main()
