"""What is wrong with the machine before anything can be judged."""

from __future__ import annotations

from racegate.scenario.errors import BadInputError


class BadInput(BadInputError):
    """The script or the machine cannot be used as it is: the message says what to do."""
