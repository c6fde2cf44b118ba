"""What stands below the help of every command: an example that can be given as it is, or with names
of one's own in the place of those in it, and the exit codes.
"""

from __future__ import annotations

# By command, what follows its name. `mine` is somebody's own.
EXAMPLES = {
    "demo": "",
    "doctor": "",
    "docs": "start_program",
    "new scenario": "rows-change-hands",
    "gate": "-k 'align and not graph'",
    "run": "finish-and-condense --fault accepted-copy-after-row-move --html race.html",
    "replay": "mine.witness.json --times 100",
    "minimise": "mine.witness.json --witness smaller",
    "export": "mine.witness.json --pytest test_mine.py",
    "bisect": "loader.py --package timm --good 1.0.30 --bad 1.0.29",
    "repair": "train.py --epochs 1",
    "explain": "mine.witness.json --html race.html",
    "ops": "finish-and-condense --fault accepted-copy-after-row-move",
    "fuzz": "--out found --seconds 60",
    "fleet": "fleet.toml --out found --scenarios 100",
    "history vllm": "--versions 0.22.1,0.24.0 --scenario finish_and_condense",
    "history sglang": "--versions 0.5.9 --model hybrid",
    "history program": "--package mine --versions 1.0,2.0 mine.py",
    "watch": "watch.toml --store found",
    "campaign serve": "--store found",
    "campaign findings": "--store found",
    "campaign verify": "5c9e0d1f2a3b --store found",
    "campaign bisect": "5c9e0d1f2a3b --store found --good v1.0",
    "campaign report": "5c9e0d1f2a3b --store found",
    "faults list": "",
    "faults effort": "--seeds 10",
    "faults halffixes": "",
    "faults mutate": "--markdown mutants.md",
    "faults matrix": "--workers 4 --html matrix.html",
    "scenarios list": "",
    "scenarios cover": "--out mine",
    "scenarios features": "--count 300",
    "adapter check": "-- python mine_adapter.py",
    "adapter run": "mine.toml -- python mine_adapter.py",
    "adapter gate": "--scenarios mine --junit junit.xml -- python mine_adapter.py",
    "adapter search": "--out found --seconds 60 -- python mine_adapter.py",
    "adapter minimise": "mine.witness.json --witness smaller",
    "adapter replay": "mine.witness.json",
    "torch run": "--explore train.py --epochs 1",
    "torch search": "--out found --scenarios 20 train.py --seed {seed}",
    "torch replay": "mine.witness.json",
    "torch minimise": "mine.witness.json --witness smaller",
    "torch doctor": "",
    "kernels": "tests/test_mine.py::test_kernel",
    "vllm setup": "--release 0.22.1",
    "vllm run": "finish-and-condense --release 0.22.1 --cache-mode align",
    "vllm gate": "--release 0.33.0 --path ~/vllm --witness found",
    "vllm draw": "--out drawn --count 200 --seed 1",
    "vllm search": "--release 0.33.0 --out found --seconds 600",
    "vllm replay": "mine.witness.json",
    "vllm minimise": "mine.witness.json --witness smaller",
    "vllm repair": "chunked-prefill --release 0.33.0 --path ~/vllm",
    "vllm mutate": "--release 0.33.0 --sample 150 --keep mutants.jsonl --markdown mutants.md",
    "sglang mutate": "--release 0.5.23 --sample 40 --keep mutants.jsonl --markdown mutants.md",
    "sglang repair": "row-of-a-finished-request --release 0.5.9",
    "sglang setup": "--release 0.5.9",
    "sglang run": "row-of-a-finished-request --release 0.5.9",
    "sglang gate": "--release 0.5.9 --path ~/sglang",
    "sglang search": "--release 0.5.9 --out found --seconds 600",
    "sglang replay": "mine.witness.json",
    "sglang minimise": "mine.witness.json --witness smaller",
    "ab": "",
    "soak": "--runs 100",
    "bench": "",
    "report": "",
}
CODES = (
    "Exit codes: 0 nothing is wrong, 1 a finding, 2 bad input, 3 the harness cannot be believed, "
    "4 something was not exercised"
)
MORE_CODES = {
    "replay": "5 another failure than the recorded one, 6 no failure",
    "torch run": "7 the script failed by itself",
}
EVERYWHERE = "(`racegate docs json` has all of them)"


def epilog_of(command: str) -> str:
    """What stands below the help of a command: paragraphs. command: without `racegate`"""
    more = MORE_CODES.get(command if command in MORE_CODES else command.rpartition(" ")[2], "")
    codes = f"{CODES}{', ' if more else ''}{more} {EVERYWHERE}."
    example = EXAMPLES.get(command)
    if example is None:
        return codes
    return f"Example: racegate {' '.join([command, example]).rstrip()}\n\n{codes}"
