"""A campaign's link to a store that it shares: what happens while the store is down.

The campaign goes on. What it finds is in its folder; what the store has not heard of is brought
over when it answers again, by this run or by a later one. After an outage everything of this run is
offered again: the store may have lost what it had.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from racegate.jobs.stores.records import CampaignState, KeptFinding
from racegate.jobs.stores.store import Store, StoreDownError, StoreError

T = TypeVar("T")

# Between tries: twice as long after each that fails.
BACK_OFF_S = 0.5
BACK_OFF_MAX_S = 60.0
# How long a campaign waits for its store before it begins, and at its end.
REACHED_WITHIN_S = 30.0
LEFT_WITHIN_S = 20.0


class StoreLink:
    """The way to one store. driver: who this is, in words that are the same for whoever goes on
    where this one stopped; on_line: gets what a user should know
    """

    def __init__(self, store: Store, driver: str, on_line: Callable[[str], None]) -> None:
        self._store = store
        self._driver = driver
        self._on_line = on_line
        self._mine: dict[str, KeptFinding] = {}
        self._unsent: dict[str, KeptFinding] = {}
        self._delay_s = 0.0
        self._next_try = 0.0

    @property
    def name(self) -> str:
        """Of the store. Without secrets."""
        return self._store.name

    @property
    def is_down(self) -> bool:
        """Whether the last try failed."""
        return self._delay_s > 0

    @property
    def unsent(self) -> int:
        """Findings of which the store has not heard."""
        return len(self._unsent)

    def begin(self, seed: int) -> tuple[list[KeptFinding], CampaignState | None]:
        """What the store has: all findings, and how far this campaign is. Waits for a store that is
        down. Raises StoreError if it does not come, or if another driver is at work.
        """
        end = time.monotonic() + REACHED_WITHIN_S
        while True:
            try:
                return self._begun(seed)
            except StoreDownError as error:
                self._fails(str(error))
                if self._next_try >= end:
                    raise
                self._wait()

    def _begun(self, seed: int) -> tuple[list[KeptFinding], CampaignState | None]:
        holder = self._store.hold(seed, self._driver)
        if holder != self._driver:
            raise StoreError(
                f"{self.name}: the campaign with seed {seed} is at work already ({holder}): take "
                "another seed, or go on with it when that has ended"
            )
        states = {state.seed: state for state in self._store.states()}
        found = self._store.findings()
        self._succeeds()
        return found, states.get(seed)

    def offer(self, finding: KeptFinding) -> KeptFinding:
        """Brings a finding over; the one that the store keeps, as far as it can be asked now."""
        self._mine[finding.signature] = self._unsent[finding.signature] = finding
        kept = self._tried(lambda: self._store.offer(finding))
        if kept is None:
            return finding
        self._unsent.pop(finding.signature, None)
        return kept

    def offer_later(self, findings: Iterable[KeptFinding]) -> None:
        """The same of what an earlier run found, which the store may not know."""
        for finding in findings:
            self._mine[finding.signature] = self._unsent[finding.signature] = finding

    def sync(self, state: CampaignState) -> None:
        """Brings over what the store has not heard of, then how far the campaign is."""
        self._tried(lambda: self._bring(state))

    def _bring(self, state: CampaignState) -> CampaignState:
        """Findings first: a campaign never seems to be further than what it found."""
        for signature in list(self._unsent):
            self._store.offer(self._unsent[signature])
            del self._unsent[signature]
        self._store.hold(state.seed, self._driver)
        return self._store.advance(state)

    def end(self, state: CampaignState) -> None:
        """The last that is brought over; a store that is down is waited for."""
        end = time.monotonic() + LEFT_WITHIN_S
        self._delay_s, self._next_try = min(self._delay_s, BACK_OFF_S), 0.0
        while self._tried(lambda: self._bring(state)) is None and self._next_try < end:
            self._wait()
        if self.is_down:
            self._on_line(
                f"{self.name} did not come back: {self.unsent} findings are in the folder alone; "
                "the same command brings them over"
            )
            return
        with suppress(StoreError, OSError):  # it forgets by itself
            self._store.release(state.seed, self._driver)

    def _tried(self, ask: Callable[[], T]) -> T | None:
        """None while the store is down."""
        if time.monotonic() < self._next_try:
            return None
        try:
            answer = ask()
        except (StoreError, OSError) as error:
            self._fails(str(error))
            return None
        self._succeeds()
        return answer

    def _fails(self, why: str) -> None:
        if not self.is_down:
            self._unsent = dict(self._mine)
            self._on_line(
                f"the store is down ({why}); what is found is kept in the folder, and brought over "
                "when it is back"
            )
        self._delay_s = min(2 * self._delay_s, BACK_OFF_MAX_S) or BACK_OFF_S
        self._next_try = time.monotonic() + self._delay_s

    def _succeeds(self) -> None:
        if self.is_down:
            self._on_line(f"the store {self.name} is back")
        self._delay_s = self._next_try = 0.0

    def _wait(self) -> None:
        threading.Event().wait(max(0.0, self._next_try - time.monotonic()))
