"""Two bases of errors that end a command: what a user can put right, and what they cannot."""

from __future__ import annotations


class BadInputError(Exception):
    """A file, a name or an argument that cannot be used: the message says what, where and why.
    The command line ends with code 2.

    Whatever reads input derives its own error from this one.
    """


class BrokenHarnessError(Exception):
    """The harness itself is not sound, so that nothing can be said: the message says why. The
    command line ends with code 3.
    """
