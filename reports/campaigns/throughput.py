"""Throughput of a campaign on a Ray cluster of this machine against processes, with two workers.

    python reports/campaigns/throughput.py [--pairs 4] [--scenarios 40] OUT.json

The two take turns, each as often first as second, so that what else the machine does falls on both.
Time is counted from the moment both workers have done a scenario to the last one: starting them is
left out. The scenarios are the same on both.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import closing
from functools import partial
from pathlib import Path

from racegate.jobs.environment import environment
from racegate.jobs.fuzz import make_worker
from racegate.jobs.generated import CampaignSpec
from racegate.jobs.pools.choice import PoolBackend, WorkerPlace, pool_of
from racegate.jobs.pools.pool import Done, Task, spread
from racegate.scenario.untrusted.files import write_json

WORKERS = 2


def rate_on(backend: PoolBackend, scenarios: int) -> float:
    """Scenarios per second."""
    pool = pool_of(WORKERS, place=WorkerPlace(backend=backend))
    make = partial(make_worker, CampaignSpec(seed=1), frozenset())
    tasks = spread((Task(name=f"{i}", content=i) for i in range(scenarios)), WORKERS)
    begun: set[int] = set()
    counted, started = 0, 0.0
    with closing(pool.run(make, tasks)) as events:
        for event in events:
            if not isinstance(event, Done):
                continue
            if len(begun) < WORKERS:
                begun.add(event.worker)
                started = time.monotonic()
            else:
                counted += 1
                last = time.monotonic()
    return counted / (last - started)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=4)
    parser.add_argument("--scenarios", type=int, default=40)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    rounds = []
    for number in range(given.pairs):
        order = [PoolBackend.LOCAL, PoolBackend.RAY][:: 1 if number % 2 == 0 else -1]
        rates = {str(backend): rate_on(backend, given.scenarios) for backend in order}
        rounds.append({"ratio": rates["ray"] / rates["local"], **rates})
        print(json.dumps(rounds[-1]), flush=True)
        text = {
            "environment": environment(),
            "scenarios": given.scenarios,
            "rounds": rounds,
            "ratio": statistics.median(one["ratio"] for one in rounds),
        }
        write_json(given.out, text)


if __name__ == "__main__":
    main()
