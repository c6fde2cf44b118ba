"""All operators of torch for which it has samples: what each reads, writes and allocates is seen.

    pip install expecttest  # which torch's own samples ask for
    python reports/interposer/operators.py OUT.json [--at-once N] [--first N] [--last N]

`operators_program.py` says what is asked of an operator. A call that is not a conflict with the
stream beside it was missed, unless EXPLAINED says why there is none; a conflict of two threads that
only share memory is a false one. Exit 1 if there is either. What is not modelled ends a run with
exit code 3: it is run again in two halves, down to one operator, which is then listed.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch

from racegate.scenario.untrusted.files import write_json

MODES = ("reads", "writes", "memory")
# Why torch's samples of an operator touch no byte of the argument, on a GPU neither.
EXPLAINED = {
    "reads": {
        **dict.fromkeys(("expand_as", "reshape_as", "view_as", "resize_as_"), "asks for the shape"),
        **dict.fromkeys(("zeros_like", "ones_like", "full_like"), "asks for shape and type"),
        **dict.fromkeys(("rand_like", "randn_like", "randint_like"), "asks for shape and type"),
        **dict.fromkeys(("new_zeros", "new_ones", "new_full"), "asks for the type"),
        "as_strided": "this sample's view shares no byte with it",
        "fill": "what is filled is not read",
        "isreal": "what has no imaginary part is real",
        "nn.functional.bilinear": "this sample has no rows",
        "repeat": "this sample repeats it no times",
    },
    "writes": {
        **dict.fromkeys(("as_strided", "squeeze", "unsqueeze", "transpose", "t"), "is a view"),
        **dict.fromkeys(("resize_", "resize_as_"), "new elements are not written"),
        "conj_physical": "what has no imaginary part is its own conjugate",
        "nn.functional.dropout": "these samples drop nothing",
        "nn.functional.dropout2d": "these samples drop nothing",
        "nn.functional.dropout3d": "these samples drop nothing",
        "nn.functional.alpha_dropout": "these samples drop nothing",
        "nn.functional.feature_alpha_dropout": "these samples drop nothing",
        "linalg.matrix_rank": "torch 2.14 leaves what is given as `out=` as it was",
    },
    "memory": {},
}
PROGRAM = Path(__file__).with_name("operators_program.py")
NAME = re.compile(r"\bof_\d+_\d+_(?:\d+|in_place|out)")


def judge(mode: str, low: int, high: int, folder: Path) -> list[dict[str, Any]]:
    """What came of the operators LOW to HIGH, in as many runs as it takes."""
    said, result = folder / "said.json", folder / "result.json"
    for file in (said, result):
        file.unlink(missing_ok=True)
    racegate = [sys.executable, "-m", "racegate", "torch", "run", "--json", str(result)]
    program = [str(PROGRAM), mode, str(low), str(high), str(said)]
    done = subprocess.run([*racegate, *program], capture_output=True, text=True, check=False)
    if done.returncode in (0, 1) and said.exists():
        found = json.loads(result.read_bytes())["findings"]
        return [{**json.loads(said.read_bytes()), "found": [one["message"] for one in found]}]
    if high - low > 1:
        middle = (low + high) // 2
        return judge(mode, low, middle, folder) + judge(mode, middle, high, folder)
    lines = [line for line in done.stderr.splitlines() if line.startswith("racegate: ")]
    return [{"not_modelled": (low, lines[-1] if lines else done.stderr[-200:])}]


def summed(mode: str, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The table's row of a mode, and what has to be looked at."""
    ran = [tuple(case) for part in parts for case in part.get("ran", ())]
    found = [message for part in parts for message in part.get("found", ())]
    named = {name for message in found for name in NAME.findall(message)}
    untouched = [case for case in ran if case[0] not in named] if mode != "memory" else []
    return {
        "mode": mode,
        "calls": len(ran),
        "operators": len({operator for _, operator in ran}),
        "missed": [case for case in untouched if case[1] not in EXPLAINED[mode]],
        "nothing to see": [case for case in untouched if case[1] in EXPLAINED[mode]],
        "false": found if mode == "memory" else [],
        "refused by torch": [case for part in parts for case in part.get("refused", ())],
        "not modelled": [part["not_modelled"] for part in parts if "not_modelled" in part],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--at-once", type=int, default=64)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--last", type=int, default=703)  # of torch 2.14
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for mode in MODES:
            parts: list[dict[str, Any]] = []
            for low in range(asked.first, asked.last, asked.at_once):
                high = min(low + asked.at_once, asked.last)
                parts += judge(mode, low, high, Path(folder))
            row = summed(mode, parts)
            rows.append(row)
            print(
                *(f"{key} {len(v) if isinstance(v, list) else v}" for key, v in row.items()),
                sep=", ",
            )
    write_json(asked.out, {"torch": str(torch.__version__), "modes": rows})
    return any(row["missed"] or row["false"] for row in rows)


if __name__ == "__main__":
    sys.exit(main())
