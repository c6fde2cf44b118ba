"""Shared causes: findings that go by several signatures, and lack one edge."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from racegate.report.cause.account import Account
from racegate.report.cause.pair import Relation

NOT_SHOWN = "its witness shows nothing here"


class SharedCause(msgspec.Struct, frozen=True, kw_only=True):
    """What findings have in common.

    cause: in words; edge: that is missing, or comes too late; null without such
    signatures: of the findings that it explains
    """

    cause: str
    edge: str | None
    signatures: tuple[str, ...]


class _Cause(msgspec.Struct, frozen=True):
    cause: str
    edge: str | None


def cause_of(account: Account | None, *, minimal: str) -> _Cause:
    """What a finding is a duplicate by: the edge that is meant for its pair; without one, the pair;
    without a pair that is unordered, what its minimal witness shows. account: of this one's run
    """
    if account is None:
        return _Cause(NOT_SHOWN, None)
    if account.relation is Relation.UNORDERED and account.edge is not None:
        return _Cause(f"edge {account.edge.name}", account.edge.name)
    if account.relation is Relation.UNORDERED and account.first and account.second:
        pair = " and ".join(_without_step(side.name) for side in (account.first, account.second))
        return _Cause(f"no edge on {account.buffer} between {pair}", None)
    return _Cause(minimal, None)


def _without_step(name: str) -> str:
    return name.partition("@")[0]


def shared_causes(found: Iterable[tuple[str, _Cause]]) -> tuple[SharedCause, ...]:
    """Findings by their cause, the one with the most first. found: signature and cause"""
    by_cause: dict[_Cause, list[str]] = {}
    for signature, cause in found:
        by_cause.setdefault(cause, []).append(signature)
    causes = (
        SharedCause(cause=cause.cause, edge=cause.edge, signatures=tuple(sorted(signatures)))
        for cause, signatures in by_cause.items()
    )
    return tuple(sorted(causes, key=lambda one: (-len(one.signatures), one.cause)))
