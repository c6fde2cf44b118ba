"""Swarm: each generated scenario switches on a few themes, and leaves the others out altogether.

A scenario in which everything may happen is one in which nothing happens often: preemptions cut
short what would have reached the longest sequence, gaps keep graphs from being replayed. Leaving
features out at random reaches more (Groce, Zhang, Eide, Chen and Regehr, Swarm Testing, ISSTA
2012). A theme makes its matter likely, not certain; together they are what pairs are made of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import TypeVar

# Picks a number below its argument.
Pick = Callable[[int], int]

T = TypeVar("T")


class Theme(StrEnum):
    """What a scenario is about, beside its settings."""

    CROWD = "crowd"  # many requests at once
    QUEUE = "queue"  # few rows
    PRESSURE = "pressure"  # pools for little more than one request
    CHUNKS = "chunks"  # prompts in chunks of 1 + k
    LONG = "long"  # requests as long as the model allows
    SHORT = "short"  # requests of one to three tokens
    REPEAT = "repeat"  # prompts that come again, two at a time
    TURNS = "turns"  # prompts that go on where a request ended
    ACCEPT = "accept"  # every draft right
    REJECT = "reject"  # every draft wrong
    RANDOM = "random"  # temperatures
    GRAMMAR = "grammar"
    STOPS = "stops"
    PREEMPT = "preempt"
    ABORT = "abort"
    GAP = "gap"
    BUDGET = "budget"
    LIMIT = "limit"  # draft limits
    ROTATE = "rotate"
    DUMMY = "dummy"


Themes = frozenset[Theme]


def draw_themes(pick: Pick) -> Themes:
    """Each theme in one scenario of three, turns in one of six because they leave two tokens; none
    is the simplest.
    """
    return frozenset(theme for theme in Theme if pick(6) > (4 if theme is Theme.TURNS else 3))


def one_of(pick: Pick, options: Sequence[T]) -> T:
    """One of some options, the simplest first."""
    return options[pick(len(options))]
