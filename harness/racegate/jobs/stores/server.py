"""A store on a server: Redis, Valkey or what speaks as they do.

Each change looks at what is there and is made only if that has not changed meanwhile (WATCH), so
that the rules are those of every other store. All keys are below one prefix; those of drivers at
work expire, all others stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import unquote, urlsplit

from racegate.jobs.stores.records import (
    STATE_BYTES_MAX,
    CampaignState,
    KeptFinding,
    RecordError,
    encoded_finding,
    encoded_state,
    finding_in,
    first_of,
    further_of,
    state_in,
)
from racegate.jobs.stores.store import LEASE_S, StoreDownError, StoreError
from racegate.scenario.untrusted.reading import ReadError, decode_json

if TYPE_CHECKING:
    from redis.client import Pipeline

T = TypeVar("T")
Record: TypeAlias = "bytes | None"

PREFIX = "racegate"
NEEDED = "no client of Redis is installed: pip install 'racegate[campaign]'"
# Valkey's own names of the same.
SCHEMES = {
    "redis": "redis",
    "rediss": "rediss",
    "valkey": "redis",
    "valkeys": "rediss",
}
FORM = "redis://[[USER]:PASSWORD@]HOST[:PORT][/NUMBER], or rediss:// with TLS"
PORT = 6379
ANSWERS_WITHIN_S = 3.0


def is_server(target: str) -> bool:
    """Whether this names a server rather than a folder."""
    return "://" in target


def shown(url: str) -> str:
    """A URL as anybody may see it: without user, password and options. Raises StoreError."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # its text has what it stumbled over, which may be of the password
        raise StoreError(f"this URL of a store is not understood: {FORM}") from None
    # Behind a `/` that is of the password there would be the rest of it.
    if parts.scheme not in SCHEMES or not host or not re.fullmatch(r"/?[0-9]*", parts.path):
        raise StoreError(f"this is no URL of a store: {FORM}")
    bracketed = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{bracketed}:{port or PORT}{parts.path.rstrip('/')}"


class ServerStore:
    """See Store. subject: the seeded fault, or none. Raises StoreError."""

    def __init__(self, url: str, subject: str) -> None:
        self._name = shown(url)
        try:
            import redis
            from redis.backoff import NoBackoff
            from redis.retry import Retry
        except ImportError:
            raise StoreError(NEEDED) from None
        self._secrets = _secrets_of(url)
        scheme, _, rest = url.partition("://")
        with self._asked():
            self._client = redis.Redis.from_url(
                f"{SCHEMES[scheme]}://{rest}",
                socket_timeout=ANSWERS_WITHIN_S,
                socket_connect_timeout=ANSWERS_WITHIN_S,
                # Who waits for a server that is down also says so.
                retry=Retry(NoBackoff(), 0),
            )
        self._below = f"{PREFIX}:{subject}"

    @property
    def name(self) -> str:
        return self._name

    def offer(self, finding: KeptFinding) -> KeptFinding:

        def change(record: Record) -> tuple[KeptFinding, Record]:
            kept = first_of(None if record is None else finding_in(record), finding)
            return kept, encoded_finding(finding) if kept is finding else None

        return self._change("finding", finding.signature, change)

    def findings(self) -> list[KeptFinding]:
        return self._all("finding", finding_in)

    def advance(self, state: CampaignState) -> CampaignState:

        def change(record: Record) -> tuple[CampaignState, Record]:
            kept = further_of(None if record is None else _state(record), state)
            return kept, encoded_state(state) if kept is state else None

        return self._change("campaign", str(state.seed), change)

    def states(self) -> list[CampaignState]:
        return sorted(self._all("campaign", _state), key=lambda state: state.seed)

    def hold(self, seed: int, driver: str) -> str:

        def change(record: Record) -> tuple[str, Record]:
            is_mine = record is None or record == driver.encode()
            return (driver, driver.encode()) if is_mine else ((record or b"").decode(), None)

        return self._change("driver", str(seed), change, expires_s=LEASE_S)

    def release(self, seed: int, driver: str) -> None:
        key = self._key("driver", str(seed))

        def release(pipe: Pipeline) -> None:
            is_mine = pipe.get(key) == driver.encode()
            pipe.multi()
            if is_mine:
                pipe.delete(key)

        with self._asked():
            self._client.transaction(release, key)

    def subjects(self) -> list[str]:
        """Of all campaigns on the server, by name."""
        with self._asked():
            keys = self._client.scan_iter(match=f"{PREFIX}:*:names:campaign")
            return sorted(key.decode().split(":")[1] for key in keys)

    def _key(self, kind: str, name: str) -> str:
        return f"{self._below}:{kind}:{name}"

    def _change(
        self,
        kind: str,
        name: str,
        change: Callable[[Record], tuple[T, Record]],
        *,
        expires_s: float | None = None,
    ) -> T:
        """change: from a record to what is said of it, and what takes its place, if anything"""
        key = self._key(kind, name)
        expires_ms = None if expires_s is None else int(expires_s * 1000)

        def changed(pipe: Pipeline) -> T:
            said, record = change(pipe.get(key))
            pipe.multi()
            if record is not None:
                pipe.set(key, record, px=expires_ms)
            if record is not None and expires_ms is None:
                pipe.sadd(self._key("names", kind), name)
            return said

        with self._asked():
            said: T = self._client.transaction(changed, key, value_from_callable=True)
        return said

    def _all(self, kind: str, read: Callable[[bytes], T]) -> list[T]:
        """Every record of a kind, by name."""
        with self._asked():
            names = sorted(self._client.smembers(self._key("names", kind)))
            keys = [self._key(kind, "").encode() + name for name in names]
            found = self._client.mget(keys) if keys else []
            return [read(record) for record in found if record is not None]

    @contextmanager
    def _asked(self) -> Iterator[None]:
        """What a server says against it, in words without secrets. Raises StoreError."""
        import redis

        try:
            yield
        except (redis.AuthenticationError, redis.exceptions.AuthorizationError) as error:
            raise StoreError(f"{self._name} lets nobody in: {self._safe(error)}") from None
        except (redis.ConnectionError, redis.TimeoutError) as error:
            raise StoreDownError(f"{self._name}: {self._safe(error)}") from None
        except (redis.RedisError, OSError, ValueError, TypeError) as error:
            raise StoreError(f"{self._name}: {self._safe(error)}") from None
        except RecordError as error:
            raise StoreError(f"{self._name}: {error}; name another database") from None

    def _safe(self, error: Exception) -> str:
        """An error's text: a server may repeat what it was told."""
        text = str(error)
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text[:500]


def _secrets_of(url: str) -> tuple[str, ...]:
    """As they stand in the URL, and as they are sent."""
    parts = urlsplit(url)
    given = [text for text in (parts.password, parts.query) if text]
    return tuple(sorted({*given, *map(unquote, given)}, key=len, reverse=True))


def _state(record: bytes) -> CampaignState:
    if len(record) > STATE_BYTES_MAX:
        raise RecordError(f"a state of {len(record)} bytes")
    try:
        return state_in(decode_json(record))
    except ReadError as error:
        raise RecordError(str(error)) from error
