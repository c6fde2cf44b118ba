"""Litmus programs about what the host can see and set: queries, freed memory, flags."""

from __future__ import annotations

from litmus_form import litmus

QUERIES = (
    litmus("query-of-a-never-recorded-event-is-true", "query e", (1,)),
    litmus(
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
    litmus(
        "query-after-a-wait-is-true",
        """
        s0: d0 = 5
        s0: record e
        wait e
        query e
        """,
        (1,),
    ),
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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

# What a freed buffer holds is unknown on a GPU; the virtual device poisons it, so these two are
# exact only there.
MEMORY = (
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
