"""Notices of campaigns, to a real server: sent again, for so long and no longer, and never a reason
for a campaign to end otherwise.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from racegate.cli import fuzz as command
from racegate.cli.app import app
from racegate.jobs.notices import webhook as module
from racegate.jobs.notices.webhook import NoticeKind, NoticeObject, Webhook
from racegate.scenario.errors import BadInputError

FAULT = "correction-partial-fields"


class Receiver(ThreadingHTTPServer):
    """A server of somebody. codes: what it answers, one after the other, and then 200

    got: what was posted; kept: holds every answer back until it is set
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.codes: list[int] = []
        self.got: list[dict[str, Any]] = []
        self.kept = threading.Event()
        self.kept.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/hooks/a-secret?token=b"


class Answering(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/json"
        self.server.got.append(json.loads(content))
        self.server.kept.wait(20)
        self.send_response(self.server.codes.pop(0) if self.server.codes else 200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.kept.set()
        server.shutdown()
        thread.join()


def notice(text: str = "x") -> NoticeObject:
    return NoticeObject(
        schema="racegate/1",
        text=text,
        kind=NoticeKind.NEW,
        by="0",
        target="",
        fault=None,
        seed=1,
        store=None,
        scenarios=1,
    )


def fuzz(out: Path, *words: str) -> Any:
    command = ["fuzz", "--out", str(out), "--fault", FAULT, "--scenarios", "1", *words]
    return CliRunner().invoke(app, command)


def test_each_finding_is_told_once_and_then_the_end(receiver: Receiver, tmp_path: Path) -> None:
    done = fuzz(tmp_path, "--webhook", receiver.url)
    assert done.exit_code == 1, done.output
    told = [msgspec.convert(one, NoticeObject) for one in receiver.got]
    *new, end = told
    assert [one.kind for one in new] == [NoticeKind.NEW] * len(new)
    files = {path.name for path in tmp_path.glob("*.witness.json")}
    assert len({one.signature for one in new}) == len(new) == len(files)
    assert all(one.fault == FAULT and one.scenario == 0 for one in new)
    assert all(
        one.text == f"racegate, own engine, seed 0: new finding {one.signature}" for one in new
    )
    assert (end.kind, end.exit_code, end.scenarios) == (NoticeKind.ENDED, 1, 1)
    again = fuzz(tmp_path, "--webhook", receiver.url)
    assert again.exit_code == 1
    (last,) = receiver.got[len(told) :]
    assert (last["kind"], last["signature"]) == ("ended", None), "what is known is not told again"


def test_a_server_that_is_busy_is_asked_again(receiver: Receiver) -> None:
    receiver.codes = [503, 429]
    said: list[str] = []
    with Webhook(receiver.url, said.append, pause_s=0.01) as webhook:
        webhook.send(notice())
    assert len(receiver.got) == 3
    assert said == []


@pytest.mark.parametrize(("codes", "tries"), [([404], 1), ([500] * 9, 3), ([302], 1)])
def test_what_is_refused_is_said_once_at_the_end(
    codes: list[int], tries: int, receiver: Receiver
) -> None:
    receiver.codes = list(codes)
    said: list[str] = []
    with Webhook(receiver.url, said.append, pause_s=0.0) as webhook:
        webhook.send(notice())
    assert len(receiver.got) == tries
    assert said == [f"1 notice did not reach http://127.0.0.1: it answered {codes[0]}"]
    assert "secret" not in said[0] and "token" not in said[0]


def test_a_campaign_ends_as_without_it_whatever_becomes_of_notices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAUSE_S", 0.0)
    monkeypatch.setattr(command, "Webhook", lambda url, say: Webhook(url, say, pause_s=0.0))
    alone = fuzz(tmp_path / "alone")
    done = fuzz(tmp_path / "told", "--webhook", "http://127.0.0.1:9/x")
    assert (done.exit_code, done.exit_code) == (alone.exit_code, 1)
    assert "notices did not reach http://127.0.0.1: " in done.stderr
    assert "Connection refused" in done.stderr
    names = [
        sorted(path.name for path in (tmp_path / one).glob("*.json")) for one in ("alone", "told")
    ]
    assert names[0] == names[1]


def test_a_server_that_never_answers_is_waited_for_so_long_and_no_longer(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_WITHIN_S", 0.2)
    receiver.kept.clear()
    said: list[str] = []
    with Webhook(receiver.url, said.append) as webhook:
        for _ in range(3):
            webhook.send(notice())
        while not receiver.got:
            time.sleep(0.001)
    assert len(said) == 1
    assert "did not reach http://127.0.0.1: no end within 0.2 s" in said[0]


def test_more_than_it_can_send_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNSENT_MAX", 2)
    said: list[str] = []
    webhook = Webhook("http://127.0.0.1:9/x", said.append, pause_s=0.0)
    for _ in range(5):
        webhook.send(notice())
    with webhook:
        pass
    assert said[0].startswith("5 notices did not reach http://127.0.0.1: ")


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/y", "hooks.example", "http://", ""])
def test_another_address_is_refused_before_anything_runs(url: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="http:// or https://"):
        Webhook(url, print)
    done = fuzz(tmp_path / "out", "--webhook", url)
    assert done.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_fleet_says_that_it_has_none(tmp_path: Path) -> None:
    words = ["fleet", "fleet.toml", "--out", str(tmp_path), "--scenarios", "1"]
    done = CliRunner().invoke(app, [*words, "--webhook", "http://x/"])
    assert done.exit_code == 2
    assert "--webhook is of a campaign on one target" in done.stderr
