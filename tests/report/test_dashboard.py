"""The dashboard says what its store says, to a browser, a program and a monitor, and to nobody
who comes by another name.
"""

from __future__ import annotations

import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from typer.testing import CliRunner

from racegate.check.selfcheck import SelfCheck
from racegate.cli.app import app
from racegate.cli.look import serve
from racegate.history.witness import Witness, load_witness
from racegate.jobs.findability import FindingStatus, clean_run, findability
from racegate.jobs.fleet.matrix import matrix_of
from racegate.jobs.stores.records import (
    MOMENTS_MAX,
    CampaignMoment,
    Sighting,
    WorkerState,
    with_moment,
)
from racegate.jobs.stores.store import StoreDownError
from racegate.report.dashboard import server
from racegate.report.dashboard.metrics import metrics_of
from racegate.report.dashboard.page import TONES, WORKERS_SHOWN_MAX, dashboard_page, spans_of
from racegate.report.dashboard.view import name_of, view_of
from racegate.report.objects import DashboardView
from stored import FAULT, MadeStore, finding, state, with_subject, worker

HOSTILE = "<script>alert(1)</script>\x1b[31m\u202eevil"


@contextmanager
def serving(application: Starlette) -> Iterator[str]:
    """The address of a server in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(application, log_level="critical", lifespan="off"))
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        running.should_exit = True
        thread.join()
        listener.close()


def asked(url: str, *, host: str | None = None, method: str = "GET") -> tuple[int, str, Any]:
    headers = {} if host is None else {"Host": host}
    request = urllib.request.Request(url, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.read().decode(), answer.headers
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode(), error.headers


def seen(store: MadeStore) -> DashboardView:
    return view_of(store.name, store.states(), store.findings(), read_at=0.0)


def drawn(witness: Witness, file: str) -> str | None:
    return f"<p>{witness.signature} in {file}</p>"


def read_by_a_monitor(view: DashboardView) -> dict[tuple[Any, ...], float]:
    """By name and labels."""
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(metrics_of(view).decode())
        for sample in family.samples
    }


HOSTS = ("127.0.0.1",)


def test_hits_and_scenarios_are_those_of_all_campaigns() -> None:
    found = finding()
    name = found.signature
    store = MadeStore(found, states=(state(1, hits={name: 2}), state(2, hits={name: 1, "z": 5})))
    view = seen(store)
    assert view.findings[0].findability == findability(3, 200)
    assert (view.schedules, view.scenarios) == (3000, 200)
    assert view.findings[0].scenario == 4
    assert view.campaigns[0].schedules_per_second == 50.0


def test_targets_stand_side_by_side() -> None:
    name, store = "divergence/inputs/x", MadeStore()
    shows = [state(1, hits={name: 2})], [finding(name)]
    matrix = matrix_of({"old": shows, "<b>new": ([state(1)], [])})
    view = view_of(store.name, (), (), read_at=0.0, targets=matrix)
    page = dashboard_page(view)
    judged = matrix.targets[0].judged
    assert f"2 of {judged}, first in 4, since 1970-01-01 00:16" in page
    assert f"- of {judged}" in page and "&lt;b&gt;new" in page and "<b>new" not in page
    told = read_by_a_monitor(view)
    assert told["racegate_target_hits_total", ("signature", name), ("target", "old")] == 2
    assert told["racegate_target_scenarios_total", ("target", "<b>new")] == 100


def test_pairs_are_counted_without_a_fault_only() -> None:
    with_fault, without = seen(MadeStore(states=(state(1, fault=FAULT), state(2)))).campaigns
    assert with_fault.pairs_possible == 0
    assert without.pairs_occurred == 1
    assert without.pairs_possible == 1 + len(without.pairs_missing)


def test_signatures_that_look_alike_have_names_of_their_own() -> None:
    names = {name_of(signature) for signature in ("a/b", "a-b", "a/b ", "ä/b", "a" * 90, "a" * 91)}
    assert len(names) == 6
    assert all(name.replace("-", "").isalnum() and name.isascii() for name in names)


@pytest.mark.parametrize(
    "selfcheck",
    [SelfCheck(canaries=6, canaries_found=5), SelfCheck(double_runs=2, mismatches=1)],
    ids=["canary", "mismatch"],
)
def test_a_campaign_that_is_not_sound_is_shown_as_one(selfcheck: SelfCheck) -> None:
    sound, broken = MadeStore(states=(state(),)), MadeStore(states=(state(selfcheck=selfcheck),))
    assert "do not count" in dashboard_page(seen(broken))
    assert "do not count" not in dashboard_page(seen(sound))


def test_hostile_text_is_shown_and_does_nothing() -> None:
    found = finding(HOSTILE, title=HOSTILE)
    hostile = state(hits={HOSTILE: 1}, aside=HOSTILE, place=HOSTILE)
    view = seen(MadeStore(found, states=(hostile,)))
    page, metrics = dashboard_page(view), metrics_of(view).decode()
    assert page.count("<script>") == 1
    for text in (page, metrics):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_a_monitor_reads_what_the_page_shows() -> None:
    found = finding()
    read = read_by_a_monitor(seen(MadeStore(found, states=(state(hits={found.signature: 3}),))))
    mine = (("fault", "none"), ("seed", "1"))
    assert read["racegate_campaign_schedules_total", *mine] == 1500
    assert read["racegate_campaign_verdicts_total", *mine, ("verdict", "PROVED")] == 97
    assert read["racegate_campaign_feature_pairs_total", *mine] == 1
    assert read["racegate_finding_hits_total", ("signature", found.signature)] == 3
    assert read[("racegate_findings",)] == 1
    assert read[("racegate_store_up",)] == 1


def test_a_finding_is_first_seen_by_the_first_and_last_by_the_last() -> None:
    found = finding()
    hits = {found.signature: 2}
    early, late = Sighting(first=1000.0, last=3000.0), Sighting(first=2000.0, last=4000.0)
    store = MadeStore(
        found, states=(state(1, hits=hits, seen=late), state(2, hits=hits, seen=early))
    )
    view = seen(store)
    assert view.findings[0].seen == Sighting(first=1000.0, last=4000.0)
    page = dashboard_page(view)
    assert "1970-01-01 00:16:40 UTC" in page and "1970-01-01 01:06:40 UTC" in page
    last = ("racegate_finding_last_seen_seconds", ("signature", found.signature))
    assert read_by_a_monitor(view)[last] == 4000
    (unseen,) = seen(MadeStore(found)).findings
    assert unseen.seen is None


def at(moment: float, done: int) -> CampaignMoment:
    return CampaignMoment(at=moment, done=done)


def test_a_finding_is_new_ongoing_or_resolved_and_stands_on_a_chart_over_time() -> None:
    name = finding().signature
    hits = {name: 10}
    new = state(hits=hits, began=900.0, moments=(at(1500.0, 50), at(2001.0, 100)))
    ongoing = msgspec.structs.replace(new, began=1001.0)
    # Ten hits among the first hundred: 47 more without one happen in one case of a hundred.
    long = clean_run(10, 100)
    resolved = msgspec.structs.replace(
        ongoing, done=100 + long, moments=(at(2000.0, 100), at(3000.0, 100 + long))
    )
    one_short = msgspec.structs.replace(resolved, done=100 + long - 1)
    for known, status in (
        (new, FindingStatus.NEW),
        (ongoing, FindingStatus.ONGOING),
        (resolved, FindingStatus.RESOLVED),
        (one_short, FindingStatus.ONGOING),
    ):
        store = MadeStore(finding(), states=(known,))
        view = view_of(store.name, store.states(), store.findings(), read_at=3000.0)
        assert view.findings[0].status is status
        page = dashboard_page(view)
        assert f'data-of="status" class="{TONES[status]}">{status}</td>' in page
        (span,) = spans_of(view)
        assert (span.begins, span.width, span.tone) == (0.0, 50.0, TONES[status])
        assert f"{status}, 1970-01-01 00:16:40 UTC to 1970-01-01 00:33:20 UTC" in page
    (uncounted,) = seen(MadeStore(finding(), states=(state(2),))).findings
    assert uncounted.status is None


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=400))
def test_how_far_it_was_when_is_kept_in_so_many_moments_that_never_promise_more(
    steps: list[int],
) -> None:
    """What was surely done after a moment is never more than what was done after it."""
    moments: tuple[CampaignMoment, ...] = ()
    done = 0
    for number, step in enumerate(steps):
        done += step
        moments = with_moment(moments, at(float(number), done))
    kept = state(done=done, moments=moments)
    assert len(moments) <= MOMENTS_MAX + 1
    assert moments[-1] == at(float(len(steps) - 1), done)
    for number in range(0, len(steps), 7):
        assert 0 <= kept.done_after(float(number)) <= sum(steps[number + 1 :])
    assert kept.done_after(len(steps) + 1.0) == 0


def test_workers_are_shown_with_their_state_and_when_they_were_heard_of() -> None:
    store = MadeStore(states=(state(),))
    view = view_of(store.name, store.states(), (), read_at=2000.0)
    page = dashboard_page(view)
    assert "1 working, 1 lost, 0 ended" in page
    assert "node-1, process 7" in page and "10 s ago" in page and "5 min ago" in page
    read = read_by_a_monitor(view)
    workers = {
        kind: read["racegate_workers", ("fault", "none"), ("seed", "1"), ("state", kind)]
        for kind in WorkerState
    }
    assert workers == {"working": 1, "lost": 1, "ended": 0}


def test_of_many_workers_a_page_shows_some() -> None:
    many = tuple(
        worker(number, WorkerState.WORKING, "node", heard_at=0.0)
        for number in range(WORKERS_SHOWN_MAX + 12)
    )
    page = dashboard_page(seen(MadeStore(states=(msgspec.structs.replace(state(), workers=many),))))
    assert "112 working" in page and "And 12 more" in page
    assert page.count("0 s ago") == WORKERS_SHOWN_MAX


def test_a_store_that_is_down_leaves_what_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "ASKED_EVERY_S", 0.0)
    store = MadeStore(finding())
    watched = server.StoreWatch(store)
    before = watched.view()
    store.error = StoreDownError("redis://10.0.0.1:6379: connection refused")
    down = watched.view()
    assert down.problem == "redis://10.0.0.1:6379: connection refused"
    assert (down.findings, down.read_at) == (before.findings, before.read_at)
    assert "connection refused" in dashboard_page(down)
    assert read_by_a_monitor(down)[("racegate_store_up",)] == 0
    store.error = None
    assert watched.view().problem is None


def test_many_readers_ask_the_store_once() -> None:
    class Counting(MadeStore):
        asked = 0

        def findings(self) -> Any:
            self.asked += 1
            return super().findings()

    store = Counting(finding())
    watched = server.StoreWatch(store)
    for _ in range(5):
        watched.view()
    assert store.asked == 1


def test_a_picture_is_drawn_once_and_again_for_another_witness() -> None:
    times = []

    def counting(witness: Witness, file: str) -> str:
        times.append(file)
        return "picture"

    pictures, first = server.Drawings(counting), finding()
    for _ in range(3):
        pictures.of(first, "a.witness.json")
    pictures.of(finding(index=5), "a.witness.json")
    assert len(times) == 2


def test_every_address_answers_and_nothing_can_be_written() -> None:
    found = finding()
    with serving(server.dashboard(MadeStore(found), drawn, hosts=HOSTS)) as url:
        name = json.loads(asked(f"{url}/campaign.json")[1])["findings"][0]["name"]
        paths = ("", "campaign.json", "metrics", f"findings/{name}")
        for path in (*paths, f"witnesses/{name}.witness.json"):
            status, _, headers = asked(f"{url}/{path}")
            assert status == 200, path
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert headers["Cache-Control"] == "no-store"
            assert asked(f"{url}/{path}", method="POST")[0] == 405
        assert (
            asked(f"{url}/findings/{name}")[1] == f"<p>{found.signature} in {name}.witness.json</p>"
        )
        assert asked(f"{url}/findings/none")[:2] == (404, "no such finding\n")
        assert asked(f"{url}/witnesses/..%2F..%2Fetc%2Fpasswd")[0] == 404


def test_a_page_elsewhere_cannot_have_a_browser_read_this_one() -> None:
    with serving(server.dashboard(MadeStore(), drawn, hosts=HOSTS)) as url:
        assert asked(url, host="evil.example")[0] == 400
        assert asked(url, host="127.0.0.1:80")[0] == 200


def test_a_witness_of_the_dashboard_is_a_witness_file(tmp_path: Any) -> None:
    found = finding()
    with serving(server.dashboard(MadeStore(found), drawn, hosts=HOSTS)) as url:
        content = asked(f"{url}/witnesses/{name_of(found.signature)}.witness.json")[1]
    file = tmp_path / "one.witness.json"
    file.write_text(content)
    assert msgspec.structs.replace(load_witness(file), checksum="") == msgspec.structs.replace(
        found.witness, checksum=""
    )


def test_a_finding_that_cannot_be_run_here_says_why() -> None:
    old = finding()
    unknown = with_subject(old.witness, fault="no-such-fault")
    kept = msgspec.structs.replace(old, witness=unknown)
    with serving(server.dashboard(MadeStore(kept), serve.drawn, hosts=HOSTS)) as url:
        status, said, _ = asked(f"{url}/findings/{name_of(old.signature)}")
    assert status == 409
    assert "no-such-fault" in said


def test_without_a_store_or_a_free_port_it_says_what_to_do(tmp_path: Any) -> None:
    nothing = CliRunner().invoke(app, ["campaign", "serve", "--store", str(tmp_path / "none")])
    assert nothing.exit_code == 2
    assert "neither a campaign's folder nor a store" in " ".join(nothing.output.split())
    (tmp_path / "none").mkdir()  # a store without a fault
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        words = ["campaign", "serve", "--store", str(tmp_path), "--port", port]
        taken = CliRunner().invoke(app, words)
    assert taken.exit_code == 2
    assert f"cannot listen at 127.0.0.1:{port}" in " ".join(taken.output.split())
