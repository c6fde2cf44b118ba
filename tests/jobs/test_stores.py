"""Laws of every store, on a folder and on a real server; and what a campaign makes of one."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from pathlib import Path
from shutil import which

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from racegate.check.selfcheck import SelfCheck
from racegate.cli.app import app
from racegate.faults.catalogue import find_fault
from racegate.history.witness import Witness, load_witness
from racegate.jobs.campaign import Campaign, CampaignError
from racegate.jobs.fleet.matrix import matrix_in
from racegate.jobs.generated import CampaignSpec, GeneratedFinding, Report, look_at
from racegate.jobs.stores import link as links
from racegate.jobs.stores import store as stores
from racegate.jobs.stores.choice import store_of, subject_of
from racegate.jobs.stores.link import StoreLink
from racegate.jobs.stores.records import CampaignState, KeptFinding, first_of
from racegate.jobs.stores.server import shown
from racegate.jobs.stores.store import Store, StoreDownError, StoreError
from racegate.scenario.untrusted.text import without_secrets
from redis_server import RedisServer, redis_server
from stored import state as made_state
from stored import with_subject

ROOT = Path(__file__).parents[2]
FAULT = "correction-partial-fields"
# Its first scenario shows something.
SPEC = CampaignSpec(seed=0, fault=FAULT)
WITNESS = load_witness(ROOT / "scenarios" / "witnesses" / f"{FAULT}.witness.json")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture(params=["folder", "server"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Store]:
    """Opens a store of a subject; twice the same is two ways to one store."""
    if request.param == "folder":
        return lambda subject: store_of(str(tmp_path), subject)
    url = request.getfixturevalue("server").url
    return lambda subject: store_of(url, f"{tmp_path.name}/{subject}")


def finding(
    *, seed: int = 1, index: int = 0, minimal: bool = False, name: str = "x/y"
) -> KeptFinding:
    scenario = msgspec.structs.replace(WITNESS.scenario, name=f"generated-{seed}-{index}")
    witness: Witness = msgspec.structs.replace(
        with_subject(WITNESS, seed=seed), scenario=scenario, signature=name
    )
    return KeptFinding(signature=name, is_minimal=minimal, witness=witness)


def facts(kept: KeptFinding) -> tuple[str, int, int, bool]:
    return kept.signature, kept.seed, kept.index, kept.is_minimal


def findings_drawn() -> st.SearchStrategy[list[KeptFinding]]:
    one = st.builds(
        finding,
        seed=st.integers(1, 2),
        index=st.integers(0, 3),
        minimal=st.booleans(),
        name=st.sampled_from(("x/y", "x/z")),
    )
    return st.lists(one, min_size=1, max_size=8)


@settings(max_examples=40)
@given(offers=findings_drawn(), order=st.randoms(use_true_random=False))
def test_the_order_within_a_seed_changes_nothing(
    offers: list[KeptFinding], order: random.Random
) -> None:
    one = [msgspec.structs.replace(offer, signature="x/y") for offer in offers]
    one = [offer for offer in one if offer.seed == one[0].seed]
    mixed = order.sample(one, len(one))
    assert facts(reduce(first_of, one)) == facts(reduce(first_of, mixed))


def test_what_is_offered_stays_as_the_rule_says(opened: Callable[[str], Store]) -> None:
    numbers = iter(range(1000))

    @settings(max_examples=12, deadline=None)
    @given(offers=findings_drawn())
    def law(offers: list[KeptFinding]) -> None:
        subject = str(next(numbers))
        expected: dict[str, KeptFinding] = {}
        for offer in offers:
            expected[offer.signature] = first_of(expected.get(offer.signature), offer)
            assert facts(opened(subject).offer(offer)) == facts(expected[offer.signature])
        kept = opened(subject).findings()
        assert list(map(facts, kept)) == [facts(expected[name]) for name in sorted(expected)]

    law()


def test_many_writers_at_once_keep_the_lowest(opened: Callable[[str], Store]) -> None:
    def write(writer: int) -> None:
        mine = opened("many")
        for index in range(writer, 24, 4):
            mine.offer(finding(index=23 - index, name=f"x/{index % 2}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert [kept.index for kept in opened("many").findings()] == [1, 0]


@pytest.mark.parametrize("kind", ["folder", "server"])
def test_what_targets_show_is_kept_apart_and_seen_side_by_side(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    is_folder = kind == "folder"
    where = str(tmp_path) if is_folder else f"{request.getfixturevalue('server').url}/3"
    assert matrix_in(where) is None
    for name, hits in (("old", {"x/y": 2}), ("new", {})):
        store = store_of(where, subject_of(name))
        store.advance(made_state(hits=hits))
        if hits:
            assert store.offer(finding()).index == 0
    # On the engine as it is nothing is known of that.
    assert store_of(where, None).findings() == []
    matrix = matrix_in(where)
    assert matrix is not None
    (row,) = matrix.rows
    (cell,) = row.cells
    assert (row.signature, cell.target, cell.hits, row.without) == ("x/y", "old", 2, ("new",))


def test_a_campaign_never_goes_back(opened: Callable[[str], Store], tmp_path: Path) -> None:
    state = Campaign(SPEC, tmp_path / "any").state(1.0)
    further, other = (
        msgspec.structs.replace(state, done=5),
        msgspec.structs.replace(state, seed=1),
    )
    store = opened("states")
    assert store.states() == []
    assert [store.advance(one).done for one in (state, further, state, other)] == [0, 5, 5, 0]
    assert opened("states").states() == [further, other]
    assert opened("another fault").states() == []


def test_one_driver_at_a_time(
    opened: Callable[[str], Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = opened("drivers")
    assert [store.hold(1, "a"), store.hold(1, "b"), store.hold(2, "b")] == ["a", "a", "b"]
    store.release(1, "b")  # not its own
    assert store.hold(1, "b") == "a"
    store.release(1, "a")
    assert store.hold(1, "b") == "b"
    for module in ("folder", "server"):
        monkeypatch.setattr(f"racegate.jobs.stores.{module}.LEASE_S", 0.001)
    store.hold(1, "b")
    taken = (store.hold(1, "a") for _ in range(10_000))
    assert "a" in taken  # who is not heard of is forgotten


@pytest.fixture(scope="module")
def report() -> Report:
    return look_at(SPEC, 0, find_fault(FAULT), set())


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "BACK_OFF_S", 0.001)
    monkeypatch.setattr(links, "REACHED_WITHIN_S", 0.01)
    monkeypatch.setattr(links, "LEFT_WITHIN_S", 0.01)


def joined(folder: Path, store: Store, *, seed: int = 0) -> tuple[Campaign, list[str]]:
    said: list[str] = []
    spec = msgspec.structs.replace(SPEC, seed=seed)
    return Campaign(spec, folder, StoreLink(store, str(folder), said.append)), said


def ended(campaign: Campaign) -> CampaignState:
    state = campaign.save(0.0)
    assert campaign.shared is not None
    campaign.shared.end(state)
    return state


def test_any_machine_goes_on(
    opened: Callable[[str], Store], tmp_path: Path, report: Report
) -> None:
    here, _ = joined(tmp_path / "here", opened("s"))
    assert here.add(report)
    here.save(0.0)
    with pytest.raises(StoreError, match=f"at work already .*{tmp_path.name}/here"):
        joined(tmp_path / "there", opened("s"))
    joined(tmp_path / "here", opened("s"))  # killed, and called again
    ended(here)
    there, _ = joined(tmp_path / "there", opened("s"))
    assert there.done == 1
    (waiting,) = there.to_minimise
    small = GeneratedFinding(
        signature=waiting.signature,
        index=waiting.index,
        witness=waiting.witness,
        runs=1,
        is_minimal=True,
    )
    there.minimised(waiting.signature, small)
    ended(there)
    again, _ = joined(tmp_path / "new", opened("s"))
    assert (again.known, list(again.to_minimise)) == ({waiting.signature}, [])
    (file,) = (tmp_path / "new").glob("*.witness.json")
    assert load_witness(file).scenario == waiting.witness.scenario


def test_two_campaigns_share_what_they_find(
    opened: Callable[[str], Store], tmp_path: Path, report: Report
) -> None:
    one, _ = joined(tmp_path / "1", opened("s"))
    other, _ = joined(tmp_path / "2", opened("s"), seed=4)
    assert one.add(report)
    assert report.found is not None
    scenario = msgspec.structs.replace(report.found.witness.scenario, name="generated-4-0")
    witness = msgspec.structs.replace(with_subject(report.found.witness, seed=4), scenario=scenario)
    later = msgspec.structs.replace(report.found, index=0, witness=witness)
    assert not other.add(msgspec.structs.replace(report, found=later))
    assert (other.known, other.new) == ({report.found.signature}, {})
    assert [ended(one).hits, ended(other).hits] == [{report.found.signature: 1}] * 2
    (kept,) = opened("s").findings()
    assert kept.seed == 0
    assert [state.done for state in opened("s").states()] == [1, 1]


def test_other_settings_are_another_campaign(
    opened: Callable[[str], Store], tmp_path: Path
) -> None:
    ended(joined(tmp_path / "1", opened("s"))[0])
    spec = msgspec.structs.replace(SPEC, holds_each=2)
    with pytest.raises(CampaignError, match=r"its campaign with this seed has .* 0 drawn holds"):
        Campaign(spec, tmp_path / "2", StoreLink(opened("s"), str(tmp_path / "1"), print))


@pytest.mark.usefixtures("fast")
def test_a_server_that_is_killed_loses_nothing(tmp_path: Path, report: Report) -> None:
    with redis_server(tmp_path) as server:
        campaign, said = joined(tmp_path / "out", store_of(server.url, FAULT))
        server.kill()
        assert campaign.add(report)
        campaign.save(0.0)
        assert campaign.shared is not None and campaign.shared.unsent == 1
        assert len(said) == 1 and "the store is down" in said[0] and "Connection refused" in said[0]
        server.start()
        while campaign.shared.unsent:
            campaign.save(0.0)
        assert said[1:] == [f"the store {server.url} is back"]
        server.kill()
        server.start()
        (kept,) = store_of(server.url, FAULT).findings()
        assert kept.signature in campaign.new
        assert store_of(server.url, FAULT).states()[0].done == 1


@pytest.mark.usefixtures("fast")
def test_what_was_found_without_the_store_is_brought_later(
    server: RedisServer, tmp_path: Path, report: Report
) -> None:
    with redis_server(tmp_path) as lost:
        campaign, said = joined(tmp_path / "out", store_of(lost.url, "late"))
    campaign.add(report)
    ended(campaign)
    assert "1 findings are in the folder alone; the same command" in said[-1]
    later, _ = joined(tmp_path / "out", store_of(server.url, "late"))
    ended(later)
    assert len(store_of(server.url, "late").findings()) == 1


@pytest.mark.usefixtures("fast")
def test_a_store_that_does_not_come_is_bad_input(tmp_path: Path) -> None:
    with redis_server(tmp_path) as lost:
        url = lost.url
    with pytest.raises(StoreDownError, match="Connection refused"):
        joined(tmp_path / "out", store_of(url, "none"))


def fuzz(folder: Path, store: str) -> tuple[int, str]:
    asked = ["fuzz", "--out", str(folder), "--scenarios", "1", "--store", store]
    result = CliRunner().invoke(app, asked)
    return result.exit_code, result.output


def test_a_password_lets_in_and_is_never_shown(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--requirepass", "s3cret") as server:
        opened = f"redis://:s3cret@127.0.0.1:{server.port}/1"
        assert store_of(opened, "none").findings() == []
        assert store_of(opened, "none").name == f"{server.url}/1"
        for wrong in ("redis://:s4cret@127.0.0.1:", "redis://127.0.0.1:"):
            code, output = fuzz(tmp_path / "out", f"{wrong}{server.port}")
            assert (code, "lets nobody in" in output, "cret" in output) == (2, True, False)


@pytest.mark.parametrize(
    "url", ["redis://:s3cret@", "http://:s3cret@h", "redis://:s3c/ret@h:x", "redis://u:7/s3c@h"]
)
def test_what_is_no_url_of_a_store_is_refused_without_its_secrets(url: str, tmp_path: Path) -> None:
    code, output = fuzz(tmp_path, url)
    assert (code, "of a store" in output, "s3c" in output) == (2, True, False)


def test_urls_are_shown_without_secrets() -> None:
    assert shown("rediss://u:p@h/2?ssl_ca_certs=x") == "rediss://h:6379/2"
    assert shown("valkey://[::1]:7") == "valkey://[::1]:7"
    assert without_secrets("redis://u:p/@q@h:1/2?password=p") == "redis://***@h:1/2?***"
    assert without_secrets("scenarios/a.toml") == "scenarios/a.toml"


def test_tls_by_url(tmp_path: Path) -> None:
    if which("openssl") is None:
        pytest.skip("no certificate can be made: apt-get install openssl")
    key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
    asked = f"req -x509 -newkey rsa:2048 -nodes -days 2 -keyout {key} -out {cert} -subj /CN=x"
    names = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", *asked.split(), *names], check=True, capture_output=True)
    options = ["--tls-port", "{port}", "--port", "0", "--tls-auth-clients", "no"]
    options += ["--tls-cert-file", str(cert), "--tls-key-file", str(key)]
    with redis_server(tmp_path, *options, "--tls-ca-cert-file", str(cert)) as server:
        url = f"rediss://127.0.0.1:{server.port}"
        store = store_of(f"{url}?ssl_ca_certs={cert}", "none")
        assert facts(store.offer(finding())) == facts(store.findings()[0])
        with pytest.raises(StoreDownError, match="certificate verify failed"):
            store_of(url, "none").findings()


def test_without_its_client_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "redis", None)
    code, output = fuzz(tmp_path, "redis://127.0.0.1")
    assert (code, "pip install 'racegate[campaign]'" in " ".join(output.split())) == (2, True)


def test_what_a_server_has_is_checked(server: RedisServer) -> None:
    import redis

    client = redis.Redis.from_url(server.url)
    store = store_of(server.url, "bad")
    store.offer(finding())
    raw = json.loads(client.get("racegate:bad:finding:x/y"))
    raw["witness"]["title"] = "altered"
    client.set("racegate:bad:finding:x/y", json.dumps(raw))
    with pytest.raises(StoreError, match="altered since it was written"):
        store.findings()
    client.set("racegate:bad:campaign:1", '{"schema": "racegate.campaign/1"}')
    client.sadd("racegate:bad:names:campaign", "1")
    with pytest.raises(StoreError, match=r"written as 'racegate.campaign/1'.* another database"):
        store.states()


def test_only_drivers_are_forgotten(server: RedisServer, tmp_path: Path) -> None:
    import redis

    client = redis.Redis.from_url(server.url)
    store = store_of(server.url, "kept")
    store.offer(finding())
    store.advance(Campaign(SPEC, tmp_path).state(0.0))
    store.hold(0, "a")
    lives = {key: client.ttl(key) for key in client.scan_iter("racegate:kept:*")}
    passing = {key for key, life in lives.items() if life != -1}
    assert (len(lives), passing) == (5, {b"racegate:kept:driver:0"})
    assert 0 < lives[b"racegate:kept:driver:0"] <= stores.LEASE_S
    assert all(key.startswith(b"racegate:") for key in client.scan_iter())


def test_a_whole_campaign_on_a_server(
    server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("racegate.jobs.generated.plant_canaries", lambda look: SelfCheck())
    asked = ["fuzz", "--out", str(tmp_path / "a"), "--seed", "0", "--fault", FAULT, "--json", "-"]
    asked += ["--scenarios", "1", "--store", server.url]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 1, result.output
    said = json.loads(result.stdout)
    kept = store_of(server.url, FAULT).findings()
    assert {one.signature for one in kept if one.is_minimal} == {
        one["signature"] for one in said["new"]
    }
    assert (said["store"], said["unsent"]) == (server.url, 0)
    assert set(said["campaign"]["hits"]) >= {one.signature for one in kept}
    # Nobody's folder is needed to go on.
    again, _ = joined(tmp_path / "b", store_of(server.url, FAULT))
    assert (again.known, again.done) == ({one.signature for one in kept}, 1)
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / name).glob("*.witness.json")}
        for name in "ab"
    )
    assert here == there != {}


def test_a_signature_that_was_seen_before_is_counted(report: Report) -> None:
    assert report.signature is not None
    again = look_at(SPEC, 0, find_fault(FAULT), {report.signature})
    assert (again.signature, again.found) == (report.signature, None)
