"""Runs the programs of ranks under NCCL on real GPUs, and says how each ends.

`ends`: all ranks end by themselves; `fails`: one raises; `hangs`: one is there when its time is up.

    python reports/interposer/ranks_gpu.py reports/interposer/ranks_gpu.json [NAME ...]

With names it runs these alone, and the others stay in the file as they are.
Needs torch and as many GPUs as a program has ranks; those that have more are left out. racegate is
not imported.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "tests" / "interpose"
PORT = 29600
LIMIT_S = 45.0  # torch's import, NCCL's beginning and a program's work take 10
GRACE_S = 8.0  # for other ranks, behind one that has failed
AT_ONCE = 6


def main(target: str, names: list[str]) -> None:
    """Writes what became of each program, or of those with these names."""
    sys.path.insert(0, str(PROGRAMS))
    from rank_programs.registry import load

    gpus = torch.cuda.device_count()
    programs = [
        one for one in load().values() if one.ranks <= gpus and one.name in (names or one.name)
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seen = pool.map(
            lambda at: became(programs[at].theme, programs[at].name, programs[at].ranks, PORT + at),
            range(len(programs)),
        )
        rows = [
            {"name": one.name, "theme": one.theme, "expected": str(one.expected), **what}
            for one, what in zip(programs, seen, strict=True)
        ]
    if names:
        known = {row["name"]: row for row in json.loads(Path(target).read_text())["programs"]}
        rows = list((known | {row["name"]: row for row in rows}).values())
    told = {
        "gpu": torch.cuda.get_device_name(0),
        "gpus": gpus,
        "torch": str(torch.__version__),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "limit_s": LIMIT_S,
        "programs": rows,
    }
    Path(target).write_text(json.dumps(told, indent=1) + "\n")
    for row in rows:
        print(f"{row['expected']:10} {row['became']:6} {row['name']}")


def became(theme: str, name: str, ranks: int, port: int) -> dict[str, object]:
    """Runs one program as so many processes: how it ends, and the last line of who fails."""
    begun = time.monotonic()
    processes = [_started(theme, name, rank, ranks, port) for rank in range(ranks)]
    failed_s = 0.0
    while any(one.poll() is None for one in processes):
        now = time.monotonic()
        failed_s = failed_s or (now if any(one.poll() for one in processes) else 0.0)
        if now - begun > LIMIT_S or (failed_s and now - failed_s > GRACE_S):
            break
        time.sleep(0.1)
    codes = [one.poll() for one in processes]
    for one in processes:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
    errors = [one.communicate()[1].strip().splitlines()[-1:] for one in processes]
    is_failed = any(code for code in codes)
    how = "fails" if is_failed else "hangs" if None in codes else "ends"
    words = next(
        (lines[0] for code, lines in zip(codes, errors, strict=True) if code and lines), ""
    )
    return {"became": how, "codes": codes, "error": words[:160]}


def _started(theme: str, name: str, rank: int, ranks: int, port: int) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, str(PROGRAMS / "rank_one.py"), theme, name],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
