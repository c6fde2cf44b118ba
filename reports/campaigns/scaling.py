"""How far a campaign scales: measured with one and two workers, simulated for more.

    python reports/campaigns/scaling.py measure [--scenarios 60] TIMES.json
    python reports/campaigns/scaling.py simulate [--mean-s S] TIMES.json OUT.json OUT.svg

`measure` runs campaigns with a store on a real server, on processes and on Ray, and writes how long
everything took, part by part. --scenarios: for each worker
`simulate` says what follows for as many workers as a cluster has, and beside it, for one and two
workers, what it would have said of the campaigns that were measured. --mean-s: also for scenarios
that are shorter on average, as they are where nothing else runs
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from multiprocessing import Pipe
from pathlib import Path
from typing import Any
from unittest import mock

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "helpers"))

from scaling_picture import picture
from timed import Clock, make_timed

import racegate.jobs.fuzz as campaigns
from campaign_model import Load, Times, simulated
from pool_workers import Squarer, numbered
from racegate.jobs.campaign import Campaign
from racegate.jobs.environment import environment
from racegate.jobs.generated import CampaignSpec
from racegate.jobs.pools.choice import PoolBackend, WorkerPlace, pool_of
from racegate.jobs.pools.cluster import RayHandle, RayTransport
from racegate.jobs.pools.pool import Done, Pool, spread
from racegate.jobs.pools.processes import (
    ProcessHandle,
    ProcessTransport,
    process_pool,
)
from racegate.jobs.stores.choice import store_of
from racegate.jobs.stores.link import StoreLink
from racegate.jobs.stores.records import CampaignState
from racegate.scenario.untrusted.files import write_json
from redis_server import RedisServer, redis_server

NULL_TASKS = 400
LOOKS_AT = (1, 2, 8, 32, 128, 512)
LOOKS_EACH = 30
SYNCS_EACH = 100
WORKERS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
SIMULATED_EACH = 60
# Of a rate by one worker alone, which a linear one keeps.
LINEAR = 0.9


HANDLES = {PoolBackend.LOCAL: ProcessHandle, PoolBackend.RAY: RayHandle}


def pool_on(backend: PoolBackend, workers: int) -> Pool:
    """Of handles also where one worker would need none."""
    if backend is PoolBackend.LOCAL:
        return process_pool()
    return pool_of(workers, place=WorkerPlace(backend=backend))


def campaign_on(
    backend: PoolBackend, workers: int, store: str, *, scenarios: int
) -> tuple[dict[str, Any], CampaignState]:
    """One real campaign without findings, in a store with nothing else: how long each part of it
    took, and where it ended.
    """
    clock, handle = Clock(), HANDLES[backend]
    with tempfile.TemporaryDirectory() as folder, ExitStack() as patches:
        make = partial(make_timed, f"{folder}/times")
        for patch in (
            clock.hearing(handle),
            clock.sending(handle),
            clock.timed(StoreLink, "sync", "sync"),
            clock.timed(Campaign, "save", "save"),
            mock.patch.object(campaigns, "make_worker", make),
            mock.patch.object(campaigns, "pool_of", lambda n, **given: pool_on(backend, n)),
        ):
            patches.enter_context(patch)
        link = StoreLink(store_of(store, None), "scaling", print)
        campaign = Campaign(CampaignSpec(seed=workers), Path(folder) / "out", link)
        bounds = campaigns.Bounds(scenarios=scenarios)
        state = campaigns.fuzz(campaign, bounds, workers=workers)
        logs = Path(folder).glob("times.*")
        tasks = [float(line) for log in logs for line in log.read_text().splitlines()]
    assert not campaign.breakages and len(tasks) == scenarios
    syncs = clock.durations["sync"]
    saves = [save - sync for save, sync in zip(clock.durations["save"], syncs, strict=True)]
    times = {
        "backend": str(backend),
        "workers": workers,
        "rate": clock.rate,
        "tasks": tasks,
        "events": clock.durations["event"],
        "saves": saves,
        "syncs": syncs,
    }
    return times, state


def delivery_on(backend: PoolBackend) -> float:
    """Of a task that is nothing: from when it is sent to its answer, less what the driver does."""
    clock, handle = Clock(), HANDLES[backend]
    pool = pool_on(backend, 1)
    tasks = spread(numbered(range(NULL_TASKS)), 1)
    with clock.hearing(handle), clock.sending(handle), closing(pool.run(Squarer, tasks)) as events:
        assert sum(isinstance(event, Done) for event in events) == NULL_TASKS
    cycles = [later - earlier for (earlier, _), (later, _) in pairwise(clock.heard)]
    return statistics.median(cycles) - statistics.median(clock.durations["event"])


def look_of(look: Callable[[], object]) -> float:
    took = []
    for _ in range(LOOKS_EACH):
        began = time.perf_counter()
        look()
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def looks_at_processes() -> dict[int, float]:
    """At so many pipes, one of which has something."""
    found = {}
    for workers in LOOKS_AT:
        with ExitStack() as left:
            handles = []
            for _ in range(workers):
                mine, its = (left.enter_context(end) for end in Pipe())
                handles.append(ProcessHandle(mock.Mock(), mine))
            its.send(None)
            found[workers] = look_of(partial(ProcessTransport().wait, handles, 1.0))
    return found


@contextmanager
def calls_of_ray(number: int) -> Iterator[list[Any]]:
    """So many answers that do not come, each of an actor's call, and one that is there."""
    import ray

    @ray.remote(num_cpus=0)
    class Silent:
        def wait(self) -> None:
            threading.Event().wait()

    actor = Silent.remote()
    yield [*(actor.wait.remote() for _ in range(number - 1)), ray.put(None)]
    ray.kill(actor)


def looks_at_actors() -> dict[int, float]:
    transport = RayTransport(None, workers=1)
    found = {}
    for workers in LOOKS_AT:
        with calls_of_ray(workers) as answers:
            handles = [RayHandle(None, answer) for answer in answers]
            found[workers] = look_of(partial(transport.wait, handles, 1.0))
    transport.close()
    return found


def worked_s(server: RedisServer) -> float:
    """By a server, in all."""
    import redis

    with redis.Redis.from_url(server.url) as client:
        said = client.info("cpu")
    return said["used_cpu_user"] + said["used_cpu_sys"]


def syncs_of(store: str, state: CampaignState) -> list[float]:
    """Of one campaign, alone at its store."""
    link = StoreLink(store_of(store, None), "scaling", print)
    took = []
    for _ in range(SYNCS_EACH):
        began = time.perf_counter()
        link.sync(state)
        took.append(time.perf_counter() - began)
    link.end(state)
    return took


def measured(each: int) -> dict[str, Any]:
    """each: scenarios of a worker"""
    os.environ["PYTHONPATH"] = os.pathsep.join((str(HERE), *sys.path))
    with tempfile.TemporaryDirectory() as root, redis_server(Path(root)) as server:
        runs = []
        for backend in (PoolBackend.LOCAL, PoolBackend.RAY):
            for workers in (1, 2):
                store = f"{server.url}/{len(runs)}"
                run, state = campaign_on(backend, workers, store, scenarios=each * workers)
                runs.append(run)
                print(backend, workers, f"{runs[-1]['rate']:.2f} scenarios/s", flush=True)
        worked_before_s = worked_s(server)
        syncs = {"server": syncs_of(server.url, state)}
        # A file system has a lock for all of it; what a server waits for it waits for all at once.
        alone_s = {"server": (worked_s(server) - worked_before_s) / SYNCS_EACH, "folder": math.inf}
        syncs["folder"] = syncs_of(f"{root}/store", state)
        return {
            "environment": environment(),
            "runs": runs,
            "delivery_s": {str(one): delivery_on(one) for one in HANDLES},
            "looks": {"local": looks_at_processes(), "ray": looks_at_actors()},
            "syncs": syncs,
            "alone_s": alone_s,
        }


def times_of(
    run: dict[str, Any], measures: dict[str, Any], syncs: list[float], alone_s: float
) -> Times:
    """As measured in one run, with the store's answers apart."""
    backend = run["backend"]
    return Times(
        tasks=run["tasks"],
        delivery_s=max(0.0, measures["delivery_s"][backend]),
        events=run["events"],
        looks={int(number): look_s for number, look_s in measures["looks"][backend].items()},
        takes_all=True,
        saves=run["saves"],
        syncs=syncs,
        alone_s=alone_s,
        pause_s=campaigns.pause_after,
    )


def averaged(times: Times, workers: int, *, campaigns: int = 1) -> Load:
    """Over seeds, of which few workers need more."""
    scenarios = SIMULATED_EACH * workers * campaigns
    loads = [
        simulated(times, workers=workers, campaigns=campaigns, scenarios=scenarios, seed=seed)
        for seed in range(1 + 20 // (workers * campaigns))
    ]
    return Load(
        **{name: statistics.mean(getattr(load, name) for load in loads) for name in Load.__slots__}
    )


def compared(measures: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured beside what the simulation says of the same times."""
    found = []
    for run in measures["runs"]:
        times = times_of(run, measures, run["syncs"], measures["alone_s"]["server"])
        load = averaged(times, run["workers"])
        kinds = {"backend": run["backend"], "workers": run["workers"]}
        found.append({**kinds, "measured": run["rate"], "simulated": load.rate})
    return found


def followed(measures: dict[str, Any], mean_s: float | None) -> dict[str, list[dict[str, Any]]]:
    """One campaign on Ray with more and more workers; campaigns of two workers on one store."""
    runs = {run["backend"]: run for run in measures["runs"] if run["workers"] == 2}
    alone = measures["alone_s"]
    ray = times_of(runs["ray"], measures, measures["syncs"]["server"], alone["server"])
    found = {"one campaign on Ray": [row_of(averaged(ray, n), n) for n in WORKERS]}
    if mean_s is not None:
        longer = statistics.mean(ray.tasks) / mean_s
        quick = replace(ray, tasks=[task_s / longer for task_s in ray.tasks])
        name = f"the same with scenarios of {mean_s:g} s"
        found[name] = [row_of(averaged(quick, n), n) for n in WORKERS]
    for store, syncs in measures["syncs"].items():
        times = times_of(runs["local"], measures, syncs, alone[store])
        found[f"campaigns of two workers, store on a {store}"] = [
            row_of(averaged(times, 2, campaigns=n // 2), n) for n in WORKERS[1:]
        ]
    return found


def row_of(load: Load, workers: int) -> dict[str, float]:
    return {"workers": workers, **{name: getattr(load, name) for name in Load.__slots__}}


def linear_up_to(rows: list[dict[str, float]]) -> float:
    """The most workers of which each does nearly as much as where there are fewest."""
    alone = rows[0]["rate"] / rows[0]["workers"]
    linear = [row["workers"] for row in rows if row["rate"] >= LINEAR * alone * row["workers"]]
    return max(linear)


def summary_of(measures: dict[str, Any]) -> dict[str, Any]:
    """Medians in milliseconds, as a reader wants them."""
    parts = ("tasks", "events", "saves", "syncs")
    return {
        "runs": {
            f"{run['backend']}, {run['workers']}": {
                part: 1000 * statistics.median(run[part]) for part in parts
            }
            for run in measures["runs"]
        },
        "delivery": {name: 1000 * value for name, value in measures["delivery_s"].items()},
        "looks": {
            name: {number: 1000 * value for number, value in looks.items()}
            for name, looks in measures["looks"].items()
        },
        "syncs": {name: 1000 * statistics.median(took) for name, took in measures["syncs"].items()},
        "server, for each sync": 1000 * measures["alone_s"]["server"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    first = kinds.add_parser("measure")
    first.add_argument("--scenarios", type=int, default=60)
    first.add_argument("times", type=Path)
    later = kinds.add_parser("simulate")
    for name in ("times", "out", "svg"):
        later.add_argument(name, type=Path)
    later.add_argument("--mean-s", type=float)
    given = parser.parse_args()
    if given.kind == "measure":
        given.times.write_text(json.dumps(measured(given.scenarios)) + "\n")
        return
    measures = json.loads(given.times.read_text())
    loads = followed(measures, given.mean_s)
    text = {
        "environment": measures["environment"],
        "milliseconds": summary_of(measures),
        "compared": compared(measures),
        "linear_up_to": {name: linear_up_to(rows) for name, rows in loads.items()},
        "simulated": loads,
    }
    write_json(given.out, text)
    given.svg.write_text(picture(loads))


if __name__ == "__main__":
    main()
