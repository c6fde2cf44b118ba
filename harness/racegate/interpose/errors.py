"""What can be wrong with a program or with this machine before anything can be judged."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a judged run ends. A script that fails by itself keeps its own exit code."""

    CLEAN = 0
    FINDING = 1
    BAD_INPUT = 2
    NOT_MODELLED = 3


class BadInput(Exception):
    """The script or the machine cannot be used as it is: the message says what to do."""


class NotModelled(Exception):
    """The program asked the device for something that this tool has no answer to."""
