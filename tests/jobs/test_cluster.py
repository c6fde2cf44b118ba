"""A Ray cluster in place of processes: the same results, and what becomes of what is lost. The
cluster is real: two nodes of one core each, on this machine's loopback.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fleets import fleet_file, toy, toys
from pool_workers import Doomed, Squarer, numbered, signs_of_one
from racegate.cli.app import app
from racegate.jobs.campaign import Campaign
from racegate.jobs.fuzz import Bounds, fuzz
from racegate.jobs.generated import CampaignSpec
from racegate.jobs.pools.choice import PoolBackend, WorkerPlace, pool_of
from racegate.jobs.pools.cluster import ClusterError, RayHandle, RayTransport, seldom
from racegate.jobs.pools.driver import GoneError
from racegate.jobs.pools.pool import Done, Ended, Event, Failed, HandedBack, SetAside, Tick, spread
from support import IS_NIGHTLY

pytest.importorskip("ray", reason="Ray is not installed: pip install 'racegate[campaign]'")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        # Workers of tests are known by name on every node.
        patch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
        nodes = Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        nodes.add_node(num_cpus=1)
        try:
            yield nodes
        finally:
            nodes.shutdown()


def place_of(cluster: Any) -> WorkerPlace:
    return WorkerPlace(backend=PoolBackend.RAY, address=cluster.address)


def heard(place: WorkerPlace, make: type[Squarer], numbers: Iterator[int]) -> list[Event[Any]]:
    pool = pool_of(2, place=place, losses_max=2)
    with closing(pool.run(make, spread(numbered(numbers), 2))) as events:
        return [event for event in events if not isinstance(event, Tick)]


def test_tasks_are_done_on_both_nodes(cluster: Any) -> None:
    events = heard(place_of(cluster), Squarer, iter(range(20)))
    done = {event.number: event.result for event in events if isinstance(event, Done)}
    assert done == {number: number * number for number in range(20)}
    processes = {event.result[1] for event in events if isinstance(event, Ended)}
    assert len(processes) == 2 and os.getpid() not in processes


def test_a_task_that_takes_two_workers_with_it_alone_is_set_aside(
    cluster: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    events = heard(place_of(cluster), Doomed, iter([1, 3, 4, 8]))
    backs = [event.doing for event in events if isinstance(event, HandedBack)]
    (aside,) = [event for event in events if isinstance(event, SetAside)]
    assert (backs, aside.name, aside.content) == (["number 3"] * 3, "number 3", 3)
    assert "2 of them while it ran alone" in aside.breakage.error
    (failed,) = [event for event in events if isinstance(event, Failed)]
    assert "ValueError: planted" in failed.breakage.error
    assert sorted(event.result for event in events if isinstance(event, Done)) == [1, 64]
    assert capfd.readouterr().out == ""  # where results go


def test_a_node_that_is_lost_takes_no_task_with_it(cluster: Any) -> None:
    """The others do what it was doing, and all that comes after."""
    node = cluster.add_node(num_cpus=1)
    pool = pool_of(3, place=place_of(cluster), losses_max=2)
    found: dict[int, int] = {}
    with closing(pool.run(Squarer, spread(numbered(iter(range(400))), 3))) as events:
        for event in events:
            if isinstance(event, Done):
                found[event.number] = event.result
            if len(found) == 20 and node is not None:
                cluster.remove_node(node, allow_graceful=False)
                node = None
    assert found == {number: number * number for number in range(400)}


def test_an_answer_that_is_lost_with_its_node_is_a_worker_that_is_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import ray

    def lost(answer: object) -> object:
        raise ray.exceptions.ObjectLostError("00", None, "")

    monkeypatch.setattr(ray, "get", lost)
    with pytest.raises(GoneError, match="is gone: "):
        RayHandle(None, None, lambda: 0).hear()


def test_signs_of_life_come_seldom_and_arrive(
    cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert signs_of_one(RayTransport(cluster.address, workers=1), 7) >= 1
    clock, said = [0.0], []
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    say = seldom(lambda: said.append(clock[0]))
    for clock[0] in (0.0, 0.9, 1.0, 1.5, 2.5):
        say()
    assert said == [0.0, 1.0, 2.5]


def signatures_of(folder: Path, place: WorkerPlace, *, workers: int) -> dict[str, int]:
    campaign = Campaign(CampaignSpec(seed=3, fault="correction-partial-fields"), folder)
    state = fuzz(campaign, Bounds(scenarios=4), workers=workers, place=place)
    assert (state.done, campaign.breakages, campaign.unchecked) == (4, [], set())
    return {found.signature: found.index for found in campaign.new.values()}


def test_a_seed_shows_the_same_on_a_cluster(cluster: Any, tmp_path: Path) -> None:
    here = signatures_of(tmp_path / "here", WorkerPlace(), workers=1)
    assert here == signatures_of(tmp_path / "there", place_of(cluster), workers=2) != {}


@pytest.mark.skipif(not IS_NIGHTLY, reason="nightly: eight workers take a minute to start")
def test_a_seed_shows_the_same_with_eight_workers(cluster: Any, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=8)
    place = place_of(cluster)
    shown = [
        signatures_of(tmp_path / f"{at.backend} {workers}", at, workers=workers)
        for at, workers in ((WorkerPlace(), 1), (WorkerPlace(), 8), (place, 8))
    ]
    cluster.remove_node(node)
    assert shown == [shown[0]] * 3 != [{}] * 3


@pytest.mark.skipif(not IS_NIGHTLY, reason="nightly: processes in workers of a cluster")
def test_what_needs_a_gpu_goes_to_the_worker_that_has_one(cluster: Any, tmp_path: Path) -> None:
    """The node only says that it has one: what runs there finds out, and is set aside."""
    node = cluster.add_node(num_cpus=1, num_gpus=1)
    _, wrong = toys(tmp_path)
    file = fleet_file(tmp_path, toy("wrong", wrong), 'name = "card"\ndevice = "gpu"')
    where = ["--backend", "ray", "--address", cluster.address, "--workers", "2"]
    words = ["fleet", str(file), "--out", str(tmp_path / "out"), "--seed", "8", *where]
    asked = [*words, "--scenarios", "1", "--json", "-"]
    without = json.loads(CliRunner().invoke(app, asked).stdout)
    assert [one["target"] for one in without["missed"]] == ["card"]
    said = json.loads(CliRunner().invoke(app, [*asked, "--gpus", "1"]).stdout)
    cluster.remove_node(node)
    assert [row["signature"] for row in said["matrix"]["rows"]] == ["loss/delivered"]
    (card,) = [one for one in said["matrix"]["targets"] if one["name"] == "card"]
    assert "this needs a GPU" in card["set_aside"][0]["why"]
    assert (said["missed"], said["exit_code"]) == ([], 3)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:9", "no Ray cluster at 127.0.0.1:9"),
        ("nowhere", "'nowhere' is no address of a Ray cluster: HOST:PORT"),
    ],
)
def test_a_cluster_that_is_not_there(address: str, said: str) -> None:
    with pytest.raises(ClusterError, match=said):
        pool_of(2, place=WorkerPlace(backend=PoolBackend.RAY, address=address))


def test_a_cluster_that_is_too_small(cluster: Any) -> None:
    cluster.wait_for_nodes()  # until the cluster has noticed which of them a test took away
    with pytest.raises(ClusterError, match=r"2 cores for 3 workers: --workers 2, or another node"):
        pool_of(3, place=place_of(cluster))


def test_without_ray_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    asked = ["fuzz", "--out", str(tmp_path), "--scenarios", "1", "--backend", "ray"]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 2
    assert "pip install 'racegate[campaign]'" in " ".join(result.output.split())


def test_an_address_is_of_a_cluster(tmp_path: Path) -> None:
    asked = ["fuzz", "--out", str(tmp_path), "--scenarios", "1", "--address", "127.0.0.1:9"]
    result = CliRunner().invoke(app, asked)
    assert (result.exit_code, "give --backend ray" in result.output) == (2, True)
