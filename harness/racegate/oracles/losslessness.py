"""Losslessness oracle: the delivered tokens are those of plain decoding, whatever was drafted,
preempted or chunked.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Loss(msgspec.Struct, frozen=True, kw_only=True):
    """A request whose delivered tokens are not a prefix of plain decoding, or end too early."""

    request: str
    index: int
    expected: int | None
    actual: int | None


def find_losses(
    delivered: Mapping[str, tuple[int, ...]],
    plain: Mapping[str, tuple[int, ...]],
    finished: Mapping[str, str],
) -> list[Loss]:
    """delivered: by the engine; plain: by plain decoding, whole; finished: why the engine ended
    each request.
    """
    losses = []
    for request, tokens in delivered.items():
        expected = plain[request]
        if finished[request] in ("abort", "unfinished"):
            expected = expected[: len(tokens)]
        index = _first_difference(tokens, expected)
        if index is not None:
            losses.append(
                Loss(
                    request=request,
                    index=index,
                    expected=expected[index] if index < len(expected) else None,
                    actual=tokens[index] if index < len(tokens) else None,
                )
            )
    return losses


def is_output_wrong(
    delivered: Mapping[str, tuple[int, ...]],
    plain: Mapping[str, tuple[int, ...]],
    finished: Mapping[str, str],
) -> bool:
    """What a test that compares only the final tokens notices: it has nothing to say about a
    request that was aborted, and one that never ended lacks tokens.
    """
    return any(
        tokens != plain[request]
        for request, tokens in delivered.items()
        if finished[request] != "abort"
    )


def _first_difference(tokens: tuple[int, ...], expected: tuple[int, ...]) -> int | None:
    if tokens == expected:
        return None
    for index, (a, b) in enumerate(zip(tokens, expected, strict=False)):
        if a != b:
            return index
    return min(len(tokens), len(expected))
