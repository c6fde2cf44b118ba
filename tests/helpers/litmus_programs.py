"""Litmus programs with their allowed outcomes: what CUDA's ordering rules permit, no more and no
less.

The virtual device must produce exactly the allowed set over all its schedules; a GPU must stay
inside it. `racy` says whether the ordering oracle must find a conflict in any one run.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Litmus:
    name: str
    program: str
    allowed: frozenset[tuple[int, ...]]
    racy: bool


def _litmus(name: str, program: str, *allowed: tuple[int, ...], racy: bool = False) -> Litmus:
    return Litmus(name, program, frozenset(allowed), racy)


STREAM_ORDER = (
    _litmus(
        "stream-is-first-in-first-out",
        """
        s0: d0 = 5
        s0: d0 = 6
        s0: h0 <- d0
        s0: record e
        wait e
        read h0[0]
        """,
        (6,),
    ),
    _litmus(
        "kernel-sees-the-copy-before-it",
        """
        h0[0] = 3
        s0: d0 <- h0
        s0: d1 = d0 * 10 + 1
        s0: h1 <- d1
        s0: record e
        wait e
        read h1[0]
        """,
        (31,),
    ),
    _litmus(
        "two-streams-are-not-ordered",
        """
        s0: d0 = 5
        s1: h0 <- d0
        s1: record e
        wait e
        read h0[0]
        """,
        (0,),
        (5,),
        racy=True,
    ),
    _litmus(
        "two-writers-on-two-streams",
        """
        s0: d0 = 5
        s0: record a
        s1: d0 = 6
        s1: record b
        wait a
        wait b
        s0: h0 <- d0
        s0: record e
        wait e
        read h0[0]
        """,
        (5,),
        (6,),
        racy=True,
    ),
    _litmus(
        "stream-wait-orders-two-streams",
        """
        s0: d0 = 5
        s0: record a
        s1: wait a
        s1: h0 <- d0
        s1: record e
        wait e
        read h0[0]
        """,
        (5,),
    ),
    _litmus(
        "order-passes-through-a-third-stream",
        """
        s0: d0 = 5
        s0: record a
        s1: wait a
        s1: record b
        s2: wait b
        s2: h0 <- d0
        s2: record e
        wait e
        read h0[0]
        """,
        (5,),
    ),
    _litmus(
        "order-through-the-host",
        """
        s0: d0 = 5
        s0: record a
        wait a
        s1: h0 <- d0
        s1: record e
        wait e
        read h0[0]
        """,
        (5,),
    ),
    _litmus(
        "wait-orders-only-what-follows-it",
        """
        s0: d0 = 5
        s0: record a
        s1: h0 <- d0
        s1: wait a
        s1: record e
        wait e
        read h0[0]
        """,
        (0,),
        (5,),
        racy=True,
    ),
    _litmus(
        "record-covers-only-what-precedes-it",
        """
        s0: record a
        s0: d0 = 5
        s1: wait a
        s1: h0 <- d0
        s1: record e
        wait e
        read h0[0]
        """,
        (0,),
        (5,),
        racy=True,
    ),
    _litmus(
        "different-buffers-do-not-conflict",
        """
        s0: d0 = 5
        s1: d1 = 6
        s0: h0 <- d0
        s1: h1 <- d1
        s0: record a
        s1: record b
        wait a
        wait b
        read h0[0]
        read h1[0]
        """,
        (5, 6),
    ),
    _litmus(
        "different-rows-do-not-conflict",
        """
        s0: d0[0] = 5
        s0: record a
        s1: d0[1] = 6
        s1: record b
        wait a
        wait b
        s0: h0 <- d0
        s0: record e
        wait e
        read h0[0]
        read h0[1]
        """,
        (5, 6),
    ),
    _litmus(
        "readers-on-two-streams-do-not-conflict",
        """
        s0: d0 = 5
        s0: record a
        wait a
        s0: h0 <- d0
        s1: h1 <- d0
        s0: record b
        s1: record c
        wait b
        wait c
        read h0[0]
        read h1[0]
        """,
        (5, 5),
    ),
    _litmus(
        "write-after-read-on-another-stream",
        """
        s0: d0 = 5
        s0: record a
        s1: wait a
        s1: h0 <- d0
        s0: d0 = 6
        s1: record e
        wait e
        read h0[0]
        """,
        (5,),
        (6,),
        racy=True,
    ),
    _litmus(
        "write-after-read-with-its-edge",
        """
        s0: d0 = 5
        s0: record a
        s1: wait a
        s1: h0 <- d0
        s1: record b
        s0: wait b
        s0: d0 = 6
        s1: record e
        wait e
        read h0[0]
        """,
        (5,),
    ),
)

EVENTS = (
    _litmus(
        "wait-on-a-never-recorded-event-is-nothing",
        """
        s1: wait a
        s1: h0 <- d0
        s1: record e
        wait e
        read h0[0]
        """,
        (0,),
    ),
    _litmus(
        "host-wait-on-a-never-recorded-event-is-nothing",
        """
        s0: d0 = 5
        wait a
        s0: h0 <- d0
        s0: record e
        wait e
        read h0[0]
        """,
        (5,),
    ),
    _litmus(
        "wait-before-the-record-binds-to-nothing",
        """
        s1: wait a
        s0: d0 = 5
        s0: record a
        s1: h0 <- d0
        s1: record e
        wait e
        read h0[0]
        """,
        (0,),
        (5,),
        racy=True,
    ),
    _litmus(
        "wait-binds-to-the-latest-record",
        """
        s0: d0 = 5
        s0: record a
        s0: d0 = 6
        s0: record a
        s1: wait a
        s1: h0 <- d0
        s1: record e
        wait e
        read h0[0]
        """,
        (6,),
    ),
    _litmus(
        "a-later-record-does-not-move-an-earlier-wait",
        """
        s0: d0 = 5
        s0: record a
        s1: wait a
        s0: d0 = 6
        s0: record a
        s1: h0 <- d0
        s1: record e
        wait e
        read h0[0]
        """,
        (5,),
        (6,),
        racy=True,
    ),
    _litmus(
        "an-event-recorded-on-another-stream-forgets-the-first",
        """
        s0: d0 = 5
        s0: record a
        s1: record a
        s2: wait a
        s2: h0 <- d0
        s2: record e
        wait e
        read h0[0]
        """,
        (0,),
        (5,),
        racy=True,
    ),
    _litmus(
        "host-wait-covers-everything-before-the-record",
        """
        s0: d0 = 5
        s0: h0 <- d0
        s0: d0 = 6
        s0: h1 <- d0
        s0: record e
        wait e
        read h0[0]
        read h1[0]
        """,
        (5, 6),
    ),
    _litmus(
        "host-wait-for-an-early-event-covers-no-later-work",
        """
        s0: d0 = 5
        s0: record e
        s0: h0 <- d0
        wait e
        read h0[0]
        """,
        (0,),
        (5,),
        racy=True,
    ),
    _litmus(
        "a-record-includes-what-its-stream-waited-for",
        """
        s0: d0 = 5
        s0: record a
        s1: wait a
        s1: record b
        wait b
        s2: h0 <- d0
        s2: record e
        wait e
        read h0[0]
        """,
        (5,),
    ),
)

QUERIES = (
    _litmus("query-of-a-never-recorded-event-is-true", "query e", (1,)),
    _litmus(
        "query-is-a-branch",
        """
        s0: d0 = 5
        s0: record e
        query e
        """,
        (0,),
        (1,),
        racy=False,
    ),
    _litmus(
        "query-after-a-wait-is-true",
        """
        s0: d0 = 5
        s0: record e
        wait e
        query e
        """,
        (1,),
    ),
    _litmus(
        "query-does-not-go-back",
        """
        s0: d0 = 5
        s0: record e
        query e
        query e
        """,
        (0, 0),
        (0, 1),
        (1, 1),
    ),
    _litmus(
        "query-of-a-later-event-implies-the-earlier",
        """
        s0: d0 = 5
        s0: record a
        s0: d0 = 6
        s0: record b
        query b
        query a
        """,
        (0, 0),
        (0, 1),
        (1, 1),
    ),
    _litmus(
        "reading-after-a-true-query",
        """
        s0: d0 = 5
        s0: h0 <- d0
        s0: record e
        if e: read h0[0]
        """,
        (0,),
        (1, 5),
        racy=True,
    ),
    _litmus(
        "reading-without-looking-at-the-query",
        """
        s0: d0 = 5
        s0: h0 <- d0
        s0: record e
        query e
        read h0[0]
        """,
        (0, 0),
        (0, 5),
        (1, 5),
        racy=True,
    ),
)

HOST_TO_DEVICE = (
    _litmus(
        "source-is-read-when-the-copy-runs",
        """
        h0[0] = 5
        s0: d0 <- h0
        h0[0] = 6
        s0: h1 <- d0
        s0: record e
        wait e
        read h1[0]
        """,
        (5,),
        (6,),
        racy=True,
    ),
    _litmus(
        "source-rewritten-behind-its-guard",
        """
        h0[0] = 5
        s0: d0 <- h0
        s0: record a
        wait a
        h0[0] = 6
        s0: h1 <- d0
        s0: record e
        wait e
        read h1[0]
        """,
        (5,),
    ),
    _litmus(
        "guard-recorded-too-early",
        """
        h0[0] = 5
        s0: record a
        s0: d0 <- h0
        wait a
        h0[0] = 6
        s0: h1 <- d0
        s0: record e
        wait e
        read h1[0]
        """,
        (5,),
        (6,),
        racy=True,
    ),
    _litmus(
        "reading-a-source-under-its-copy-is-harmless",
        """
        h0[0] = 5
        s0: d0 <- h0
        read h0[0]
        """,
        (5,),
    ),
    _litmus(
        "another-row-of-the-source",
        """
        h0[0] = 5
        h0[1] = 7
        s0: d0 <- h0
        h0[1] = 8
        s0: h1 <- d0
        s0: record e
        wait e
        read h1[0]
        read h1[1]
        """,
        (5, 7),
        (5, 8),
        racy=True,
    ),
    _litmus(
        "host-write-before-the-issue-is-seen",
        """
        h0[0] = 5
        h0[0] = 6
        s0: d0 <- h0
        s0: h1 <- d0
        s0: record e
        wait e
        read h1[0]
        """,
        (6,),
    ),
    _litmus(
        "two-buffers-in-turn",
        """
        h0[0] = 5
        s0: d0 <- h0
        s0: h2 <- d0
        h1[0] = 6
        s0: d0 <- h1
        s0: h3 <- d0
        s0: record e
        wait e
        read h2[0]
        read h3[0]
        """,
        (5, 6),
    ),
    _litmus(
        "the-same-source-on-two-streams",
        """
        h0[0] = 5
        s0: d0 <- h0
        s1: d1 <- h0
        s0: record a
        wait a
        h0[0] = 6
        s1: h1 <- d1
        s1: record e
        wait e
        read h1[0]
        """,
        (5,),
        (6,),
        racy=True,
    ),
)

DEVICE_TO_HOST = (
    _litmus(
        "host-reads-before-the-copy-landed",
        """
        s0: d0 = 5
        s0: h0 <- d0
        read h0[0]
        """,
        (0,),
        (5,),
        racy=True,
    ),
    _litmus(
        "host-reads-behind-the-event",
        """
        s0: d0 = 5
        s0: h0 <- d0
        s0: record e
        wait e
        read h0[0]
        """,
        (5,),
    ),
    _litmus(
        "host-writes-a-target-in-flight",
        """
        s0: d0 = 5
        s0: h0 <- d0
        h0[0] = 9
        s0: record e
        wait e
        read h0[0]
        """,
        (5,),
        (9,),
        racy=True,
    ),
    _litmus(
        "host-moves-a-row-under-the-copy",
        """
        h0[0] = 1
        h0[1] = 2
        s0: d0 = 5
        s0: h0 <- d0
        h0[0] = 7
        s0: record e
        wait e
        read h0[0]
        read h0[1]
        """,
        (5, 5),
        (7, 5),
        racy=True,
    ),
    _litmus(
        "two-copies-on-two-streams-into-one-target",
        """
        s0: d0 = 5
        s0: d1 = 6
        s0: record a
        s1: wait a
        s0: h0 <- d0
        s1: h0 <- d1
        s0: record b
        s1: record c
        wait b
        wait c
        read h0[0]
        """,
        (5,),
        (6,),
        racy=True,
    ),
    _litmus(
        "two-copies-on-one-stream-into-one-target",
        """
        s0: d0 = 5
        s0: h0 <- d0
        s0: d0 = 6
        s0: h0 <- d0
        s0: record e
        wait e
        read h0[0]
        """,
        (6,),
    ),
    _litmus(
        "waiting-for-the-other-stream",
        """
        s0: d0 = 5
        s0: record a
        s1: wait a
        s1: h0 <- d0
        s0: record e
        wait e
        read h0[0]
        """,
        (0,),
        (5,),
        racy=True,
    ),
    _litmus(
        "a-copy-that-meets-a-copy",
        """
        s0: d0 = 5
        s0: h0 <- d0
        s1: d1 <- h0
        s1: h1 <- d1
        s1: record e
        wait e
        read h1[0]
        """,
        (0,),
        (5,),
        racy=True,
    ),
)

# What a freed buffer holds is unknown on a GPU; the virtual device poisons it, so these two are
# exact only there.
MEMORY = (
    _litmus(
        "freed-memory-is-reused-in-stream-order",
        """
        s0: d0 = 5
        s0: h0 <- d0
        free d0
        alloc d1 on s0
        s0: d1 = 6
        s0: h1 <- d1
        s0: record e
        wait e
        read h0[0]
        read h1[0]
        """,
        (5, 6),
    ),
    _litmus(
        "another-stream-still-reads-freed-memory",
        """
        s0: d0 = 5
        s0: record a
        s1: wait a
        s1: h0 <- d0
        free d0
        alloc d1 on s0
        s0: d1 = 6
        s1: record e
        wait e
        read h0[0]
        """,
        (5,),
        (6,),
        (0x7F7F7F7F,),
        racy=True,
    ),
    _litmus(
        "freed-behind-the-reader's-event",
        """
        s0: d0 = 5
        s0: record a
        s1: wait a
        s1: h0 <- d0
        s1: record b
        s0: wait b
        free d0
        alloc d1 on s0
        s0: d1 = 6
        s1: record e
        wait e
        read h0[0]
        """,
        (5,),
    ),
)

# The ordering oracle gives no credit for an order through a flag: it may call such a program racy,
# never the reverse.
FLAGS = (
    _litmus(
        "a-flag-holds-its-stream",
        """
        s0: d0 = 5
        s0: wait flag f
        s0: h0 <- d0
        read h0[0]
        set f
        s0: record e
        wait e
        read h0[0]
        """,
        (0, 5),
        racy=True,
    ),
    _litmus(
        "a-flag-lets-other-streams-pass",
        """
        s0: wait flag f
        s0: h0 <- d0
        s1: d1 = 5
        s1: h1 <- d1
        s1: record a
        wait a
        read h1[0]
        set f
        s0: record e
        wait e
        read h0[0]
        """,
        (5, 0),
    ),
    _litmus(
        "a-flag-set-before-holds-nothing",
        """
        set f
        s0: d0 = 5
        s0: wait flag f
        s0: h0 <- d0
        s0: record e
        wait e
        read h0[0]
        """,
        (5,),
    ),
)

ALL = (
    *STREAM_ORDER,
    *EVENTS,
    *QUERIES,
    *HOST_TO_DEVICE,
    *DEVICE_TO_HOST,
    *MEMORY,
    *FLAGS,
)
