"""A store in a folder: a file for each finding, a witness to replay, and for each state."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from racegate.history.witness import WitnessError, save
from racegate.jobs.stores.records import (
    STATE_BYTES_MAX,
    CampaignState,
    KeptFinding,
    RecordError,
    encoded_state,
    first_of,
    further_of,
    state_in,
)
from racegate.jobs.stores.store import LEASE_S, StoreError
from racegate.jobs.stores.witnesses import any_witness, drawn_at
from racegate.scenario.strict import StrictStruct
from racegate.scenario.untrusted.files import check_writable, write_whole
from racegate.scenario.untrusted.reading import ReadError, read_json

WITNESS = ".witness.json"
RAW = ".raw.witness.json"
# Of the one campaign whose folder it is, and of those that share a folder.
STATE_FILE = "campaign.json"
STATE = ".campaign.json"
LEASE = ".driver.json"
LEASE_BYTES_MAX = 1 << 16
LOCK = ".lock"


class _Lease(StrictStruct, frozen=True, kw_only=True):
    """Who works at a campaign. until: seconds since 1970, the clock that machines share"""

    driver: str
    until: float


class FolderStore:
    """See Store. A folder that does not exist is made. Raises StoreError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with self._alone():
                check_writable(folder / STATE_FILE)
        except OSError as error:
            raise StoreError(str(error)) from error

    @property
    def name(self) -> str:
        return str(self._folder)

    def offer(self, finding: KeptFinding) -> KeptFinding:
        """See Store. A minimal form takes the place of what was found. Raises OSError."""
        with self._alone():
            kept = first_of(self._kept(finding.signature), finding)
            if kept is finding:
                names = (witness_name(finding.signature), raw_name(finding.signature))
                new, old = names if finding.is_minimal else reversed(names)
                save(finding.witness, self._folder / new)
                (self._folder / old).unlink(missing_ok=True)
        return kept

    def findings(self) -> list[KeptFinding]:
        """See Store. By what they show: a minimal form may go by another name."""
        found: dict[str, KeptFinding] = {}
        for path in sorted(self._folder.glob(f"*{WITNESS}")):
            one = _read(path)
            found[one.signature] = first_of(found.get(one.signature), one)
        return [found[signature] for signature in sorted(found)]

    def advance(self, state: CampaignState) -> CampaignState:
        """See Store. Raises OSError."""
        path = self._folder / f"{state.seed}{STATE}"
        with self._alone():
            kept = further_of(load_state(path) if path.exists() else None, state)
            if kept is state:
                write_whole(path, encoded_state(state))
        return kept

    def states(self) -> list[CampaignState]:
        paths = [*self._folder.glob(f"*{STATE}"), *self._folder.glob(STATE_FILE)]
        found = [load_state(path) for path in paths]
        return sorted(found, key=lambda state: state.seed)

    def hold(self, seed: int, driver: str) -> str:
        """See Store. Raises OSError."""
        path = self._folder / f"{seed}{LEASE}"
        with self._alone():
            lease = _lease(path) if path.exists() else None
            if lease is not None and lease.driver != driver and lease.until > time.time():
                return lease.driver
            mine = _Lease(driver=driver, until=time.time() + LEASE_S)
            write_whole(path, msgspec.json.encode(mine))
        return driver

    def release(self, seed: int, driver: str) -> None:
        """See Store. Raises OSError."""
        path = self._folder / f"{seed}{LEASE}"
        with self._alone():
            if path.exists() and _lease(path).driver == driver:
                path.unlink()

    def _kept(self, signature: str) -> KeptFinding | None:
        """A kill between writing one form and removing the other leaves both."""
        kept: KeptFinding | None = None
        for name in (witness_name(signature), raw_name(signature)):
            path = self._folder / name
            if path.exists():
                kept = first_of(kept, msgspec.structs.replace(_read(path), signature=signature))
        return kept

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """No other process changes the folder meanwhile, on whatever machine: files are looked at
        before they are written. Raises OSError.
        """
        lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)


def _read(path: Path) -> KeptFinding:
    try:
        witness = any_witness(path)
        drawn_at(witness)
    except WitnessError as error:
        raise StoreError(str(error)) from error
    is_minimal = not path.name.endswith(RAW)
    return KeptFinding(signature=witness.known_as, is_minimal=is_minimal, witness=witness)


def load_state(path: Path) -> CampaignState:
    """How far a campaign is, as a file says. Raises StoreError."""
    try:
        return state_in(read_json(path, STATE_BYTES_MAX))
    except (ReadError, RecordError) as error:
        raise StoreError(f"{path}: {error}") from error


def _lease(path: Path) -> _Lease:
    try:
        return msgspec.convert(read_json(path, LEASE_BYTES_MAX), _Lease)
    except (ReadError, msgspec.ValidationError) as error:
        raise StoreError(f"{path}: {error}") from error


def witness_name(signature: str) -> str:
    """A file name for a signature."""
    plain = "".join(c if c.isalnum() or c in "-_." else "_" for c in signature.replace("/", "-"))
    return f"{plain[:120]}{WITNESS}"


def raw_name(signature: str) -> str:
    """The same for a witness that is not minimised."""
    return f"{witness_name(signature).removesuffix(WITNESS)}{RAW}"
