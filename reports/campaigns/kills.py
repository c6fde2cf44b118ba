"""Kills workers, nodes, drivers and stores of campaigns at random moments, and says what was lost.

    python reports/campaigns/kills.py [--kills 100] [--seed 0] [--backends local ray] OUT.json

Each campaign is the same one, on processes here and on a Ray cluster of three nodes in turn, with a
store on a real server. When it has come to its end it must have what nobody disturbed finds:
witnesses in the folder and in the store, and counts of verdicts and signatures. OUT.json gets the
figures, and an interrupted run goes on with it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "tests" / "helpers"))

from racegate.jobs.environment import environment
from racegate.jobs.stores.choice import store_of
from racegate.scenario.untrusted.files import write_json
from redis_server import RedisServer, redis_server

FAULT = "correction-partial-fields"
SCENARIOS = 12
COMMAND = ["fuzz", "--fault", FAULT, "--seed", "0", "--scenarios", str(SCENARIOS), "--json", "-"]
# Between two kills: workers are at their start, at a scenario or at a minimal form.
MOMENTS_S = (0.2, 6.0)
# More would let nothing be done before the last of them.
KILLS_OF_ONE = 25
STORE_DOWN_S = (0.0, 2.0)
# How often the command is given again after a driver that gave up: kills may come faster than
# workers start, and a driver takes that for workers that cannot.
AGAIN_MAX = 3
BACKENDS = ["local", "ray"]


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """A driver."""
    command = [sys.executable, "-m", "racegate", *COMMAND, "--out", str(folder), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def facts_of(folder: Path, said: dict[str, Any]) -> dict[str, Any]:
    """What a campaign has found, whoever did it."""
    campaign = said["campaign"]
    witnesses = {
        path.name: json.loads(path.read_text())["scenario"]["name"]
        for path in sorted(folder.glob("*.witness.json"))
    }
    return {
        "witnesses": witnesses,
        **{name: campaign[name] for name in ("done", "schedules", "verdicts", "hits")},
    }


class Scene:
    """One campaign, and what may be killed of it. cluster: None for processes here"""

    def __init__(self, folder: Path, server: RedisServer, cluster: Any) -> None:
        self._folder = folder
        self._server = server
        self._cluster = cluster
        self._spare = [] if cluster is None else [cluster.add_node(num_cpus=1) for _ in range(2)]
        self.driver = self._started()

    @property
    def kinds(self) -> list[str]:
        return ["worker", "driver", "store"] + (["node"] if self._cluster else [])

    def kill(self, kind: str, moment: random.Random) -> bool:
        """Whether there was one to kill."""
        if kind == "worker":
            workers = self._workers()
            if not workers:
                return False
            os.kill(moment.choice(workers), signal.SIGKILL)
        elif kind == "node":
            node = self._spare.pop(moment.randrange(len(self._spare)))
            self._cluster.remove_node(node, allow_graceful=False)
            self._spare.append(self._cluster.add_node(num_cpus=1))
        elif kind == "driver":
            self.driver.kill()
            self.driver.communicate()
            self.go_on()
        else:
            self._server.kill()
            time.sleep(moment.uniform(*STORE_DOWN_S))
            self._server.start()
        return True

    def go_on(self) -> None:
        """The same command, once more."""
        self.driver = self._started()

    def said(self, seconds: float | None) -> dict[str, Any] | None:
        """What its driver says at its end; None if it has not come to it by then."""
        try:
            output, _ = self.driver.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        said: dict[str, Any] = json.loads(output)
        return said

    def _started(self) -> subprocess.Popen[str]:
        where = [] if self._cluster is None else ["--address", self._cluster.address]
        backend = ["--backend", "local" if self._cluster is None else "ray", *where]
        return started(self._folder, "--workers", "2", "--store", self._server.url, *backend)

    def _workers(self) -> list[int]:
        parents = {self.driver.pid}
        if self._cluster is not None:
            nodes = [self._cluster.head_node, *self._spare]
            parents = {node.all_processes["raylet"][0].process.pid for node in nodes}
        return [
            process
            for process, parent, command in processes()
            if parent in parents and ("spawn_main" in command or "ray::_Served" in command)
        ]


def processes() -> Iterator[tuple[int, int, str]]:
    """Number, parent and command of each."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text().replace("\0", " ")
        except (OSError, ValueError):
            continue  # it has ended
        yield int(folder.name), parent, command


@contextmanager
def cluster_of_three() -> Iterator[Any]:
    """A head with a core, which is not killed; two more come with the scene."""
    from ray.cluster_utils import Cluster

    nodes = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        yield nodes
    finally:
        nodes.shutdown()


def disturbed(backend: str, moment: random.Random, left: int) -> dict[str, Any]:
    """One campaign with so many kills at most: which, what was lost, how often a driver gave up
    and the command was given again, and what the last one said: what was set aside, workers that it
    replaced, errors of the harness.
    """
    kills: Counter[str] = Counter()
    again = 0
    with ExitStack() as at_end:
        root = Path(at_end.enter_context(tempfile.TemporaryDirectory()))
        (root / "server").mkdir()
        server = at_end.enter_context(redis_server(root / "server"))
        cluster = at_end.enter_context(cluster_of_three()) if backend == "ray" else None
        scene = Scene(root / "out", server, cluster)
        at_end.callback(lambda: scene.driver.kill())
        said = None
        while said is None:
            said = scene.said(moment.uniform(*MOMENTS_S) if kills.total() < left else None)
            if said is None:
                kind = moment.choice(scene.kinds)
                kills[kind] += scene.kill(kind, moment)
            elif said["campaign"]["done"] < SCENARIOS and again < AGAIN_MAX:
                scene.go_on()
                again, said = again + 1, None
        found = facts_of(root / "out", said)
        # What any machine would go on from.
        shutil.rmtree(root / "out")
        store = store_of(server.url, FAULT)
        (state,) = store.states()
        kept = sorted(one.witness.scenario.name for one in store.findings() if one.is_minimal)
        stored = {"done": state.done, "hits": state.hits, "verdicts": state.verdicts}
    differs = found != undisturbed() or {name: found[name] for name in stored} != stored
    differs |= kept != sorted(found["witnesses"].values()) or said["unsent"] > 0
    seen = {"found": found, "stored": stored, "kept": kept, "unsent": said["unsent"]}
    why = json.dumps({**seen, "undisturbed": undisturbed()}) if differs else ""
    told = {"again": again, "set_aside": said["campaign"]["set_aside"], "losses": said["losses"]}
    return {"kills": kills, "lost": why, **told, "breakages": said["breakages"]}


REFERENCE: dict[str, Any] = {}


def undisturbed() -> dict[str, Any]:
    """What the campaign finds when nothing is killed."""
    if not REFERENCE:
        with tempfile.TemporaryDirectory() as folder:
            output, _ = started(Path(folder), "--workers", "2").communicate()
            REFERENCE.update(facts_of(Path(folder), json.loads(output)))
    return REFERENCE


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    rounds = json.loads(given.out.read_text())["rounds"] if given.out.exists() else []
    while (left := given.kills - sum(sum(one["kills"].values()) for one in rounds)) > 0:
        backend = given.backends[len(rounds) % len(given.backends)]
        moment = random.Random(f"{given.seed} {len(rounds)}")
        one = {"backend": backend, **disturbed(backend, moment, min(left, KILLS_OF_ONE))}
        one["commit"] = environment()["commit"]
        rounds.append(one)
        text = {
            "environment": environment(),
            "command": f"python reports/campaigns/kills.py --seed {given.seed} "
            f"--backends {' '.join(given.backends)}",
            "scenarios": SCENARIOS,
            "rounds": rounds,
        }
        write_json(given.out, text)
        print(json.dumps(one), flush=True)
    return int(any(one["lost"] for one in rounds))


if __name__ == "__main__":
    raise SystemExit(main())
