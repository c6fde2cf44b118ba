"""Notices by a webhook: JSON that is sent while a campaign runs, which waits for none of it.

Whatever becomes of them (no answer, a refusal, no network) is said on standard error, and is never
a reason for a campaign to end, or to end otherwise.
"""

from __future__ import annotations

import queue
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from types import TracebackType
from urllib.parse import urlsplit

import msgspec

from racegate.history import __version__
from racegate.history.outcome import SCHEMA
from racegate.jobs.campaign import Campaign
from racegate.jobs.findability import FindingStatus, alike, status_in
from racegate.jobs.generated import GeneratedFinding
from racegate.jobs.stores.records import CampaignState
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.text import many

TRIES = 3
ANSWER_WITHIN_S = 5.0
PAUSE_S = 1.0  # before the second try; twice as long before the third
END_WITHIN_S = 15.0
UNSENT_MAX = 1000


class NoticeKind(StrEnum):
    """What is told. NEW: a finding; RESOLVED: one that a clean run, or a version that is watched,
    says is gone; STOPPED: a version that no longer runs; ENDED: the run
    """

    NEW = "new"
    RESOLVED = "resolved"
    STOPPED = "stopped"
    ENDED = "ended"


class NoticeObject(msgspec.Struct, frozen=True, kw_only=True):
    """What is posted to a webhook.

    text: all of it in one line, which chats show; kind: what is told; by: racegate's version
    target: what the campaign judges, empty of racegate's own engine; fault: the seeded one, if any
    seed: of the campaign; store: what it shares with others, without secrets, null without one
    scenarios: looked at so far; signature, scenario: of a finding, and the index that showed it;
        null at the end of a run
    exit_code: of a run that ended, else null
    """

    schema: str
    text: str
    kind: NoticeKind
    by: str
    target: str
    fault: str | None
    seed: int
    store: str | None
    scenarios: int
    signature: str | None = None
    scenario: int | None = None
    exit_code: int | None = None


class Webhook:
    """Sends notices one after the other, in a thread of its own, to the end of a `with`.

    url: of http or https; say: is told what was not sent. Raises BadInputError for another URL.
    """

    def __init__(self, url: str, say: Callable[[str], None], *, pause_s: float = PAUSE_S) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise BadInputError("--webhook: an address with http:// or https:// is expected")
        self._url, self._say, self._pause_s = url, say, pause_s
        # What follows the host is often a secret.
        self._where = f"{parts.scheme}://{parts.hostname}"
        self._waiting: queue.Queue[NoticeObject | None] = queue.Queue(UNSENT_MAX)
        self._unsent: list[str] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._send_all, daemon=True)

    def __enter__(self) -> Webhook:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end = time.monotonic() + END_WITHIN_S
        with suppress(queue.Full):
            self._waiting.put(None, timeout=END_WITHIN_S)
        self._thread.join(max(0.0, end - time.monotonic()))
        left = self._waiting.qsize() + len(self._unsent)
        self._is_over.set()
        if self._thread.is_alive():
            left += 1
            self._unsent.append(f"no end within {END_WITHIN_S:g} s")
        if left:
            why = self._unsent[-1] if self._unsent else "too many at once"
            self._say(f"{many(left, 'notice')} did not reach {self._where}: {why}")

    def send(self, notice: NoticeObject) -> None:
        """Has it sent, and waits for nothing."""
        try:
            self._waiting.put_nowait(notice)
        except queue.Full:
            self._unsent.append("too many at once")

    def _send_all(self) -> None:
        while (notice := self._waiting.get()) is not None:
            if reason := self._tried(msgspec.json.encode(notice)):
                self._unsent.append(reason)

    def _tried(self, content: bytes) -> str:
        """Why it was not taken, empty if it was."""
        reason = ""
        for number in range(TRIES):
            self._is_over.wait(self._pause_s * number)
            reason, is_final = self._posted(content)
            if not reason or is_final:
                break
        return reason

    def _posted(self, content: bytes) -> tuple[str, bool]:
        """Why one try was in vain, if it was, and whether another one would be too."""
        headers = {"Content-Type": "application/json", "User-Agent": f"racegate/{__version__}"}
        request = urllib.request.Request(self._url, content, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_WITHIN_S):
                return "", True
        except urllib.error.HTTPError as error:
            error.close()
            # A refusal stays one, unless it says: later.
            return f"it answered {error.code}", error.code < 500 and error.code not in (408, 429)
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            return str(reason) or type(error).__name__, False


class CampaignNotices:
    """What a run of a campaign tells: each finding once, as it comes, and at the end the rest.

    What was resolved before the run is not told again.
    """

    def __init__(self, webhook: Webhook, campaign: Campaign) -> None:
        self._webhook = webhook
        self._campaign = campaign
        self._told: set[str] = set()
        self._resolved = _resolved(campaign.state(0.0))

    def look(self) -> None:
        """Tells what is new since the last look."""
        for signature, found in list(self._campaign.new.items()):
            if signature not in self._told:
                self._told.add(signature)
                self._send(NoticeKind.NEW, f"new finding {signature}", found)

    def end(self, state: CampaignState, exit_code: int) -> None:
        """Tells what the whole run came to."""
        self.look()
        for signature in sorted(_resolved(state) - self._resolved):
            self._send(NoticeKind.RESOLVED, f"resolved: {signature}", signature=signature)
        new = many(len(self._campaign.new), "new finding")
        text = f"ended with {exit_code}: {new} in {many(state.done, 'scenario')}"
        self._send(NoticeKind.ENDED, text, exit_code=exit_code)

    def _send(
        self,
        kind: NoticeKind,
        text: str,
        found: GeneratedFinding | None = None,
        *,
        signature: str | None = None,
        exit_code: int | None = None,
    ) -> None:
        campaign = self._campaign
        spec, shared = campaign.spec, campaign.shared
        self._webhook.send(
            NoticeObject(
                schema=SCHEMA,
                text=f"racegate, {spec.target or 'own engine'}, seed {spec.seed}: {text}",
                kind=kind,
                by=__version__,
                target=spec.target,
                fault=spec.fault,
                seed=spec.seed,
                store=None if shared is None else shared.name,
                scenarios=campaign.done,
                signature=signature if found is None else found.signature,
                scenario=None if found is None else found.index,
                exit_code=exit_code,
            )
        )


def _resolved(state: CampaignState) -> set[str]:
    states = alike(state, [state])
    return {name for name in state.hits if status_in(states, name) is FindingStatus.RESOLVED}
