"""BadInputError: what a user can put right. The command line says why and ends with code 2."""

from __future__ import annotations


class BadInputError(Exception):
    """A file, a name or an argument that cannot be used: the message says what, where and why.

    Whatever reads input derives its own error from this one.
    """
