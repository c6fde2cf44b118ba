"""What a watch tells a webhook: new findings, findings that are gone, and versions that stopped."""

from __future__ import annotations

from collections.abc import Iterator

from racegate.history import __version__
from racegate.history.outcome import SCHEMA
from racegate.jobs.notices.webhook import NoticeKind, NoticeObject
from racegate.jobs.versions.watching import VersionChange, WatchedVersion


def notices_of(found: WatchedVersion, store: str) -> Iterator[NoticeObject]:
    """One for each change. store: its name, without secrets"""
    after = f" (after {found.before})" if found.before else ""
    for signature in found.new:
        yield _notice(found, store, NoticeKind.NEW, f"new finding {signature}{after}", signature)
    for signature in found.gone:
        yield _notice(found, store, NoticeKind.RESOLVED, f"gone: {signature}{after}", signature)
    if found.change is VersionChange.STOPPED:
        yield _notice(found, store, NoticeKind.STOPPED, f"no longer runs{after}: {found.said}")


def _notice(
    found: WatchedVersion, store: str, kind: NoticeKind, text: str, signature: str | None = None
) -> NoticeObject:
    return NoticeObject(
        schema=SCHEMA,
        text=f"racegate, {found.name} on {found.package} {found.version}: {text}",
        kind=kind,
        by=__version__,
        target=found.target,
        fault=None,
        seed=0,
        store=store,
        scenarios=1,
        signature=signature,
        scenario=None if signature is None else 0,
    )
