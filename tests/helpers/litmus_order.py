"""Litmus programs about the order that streams and events give."""

from __future__ import annotations

from litmus_form import litmus

STREAM_ORDER = (
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
