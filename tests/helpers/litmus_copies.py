"""Litmus programs about copies that meet accesses of the host."""

from __future__ import annotations

from litmus_form import litmus

HOST_TO_DEVICE = (
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
        "reading-a-source-under-its-copy-is-harmless",
        """
        h0[0] = 5
        s0: d0 <- h0
        read h0[0]
        """,
        (5,),
    ),
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
    litmus(
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
