"""What scenarios are drawn for targets."""

from __future__ import annotations

from enum import StrEnum

from racegate.jobs.foreign.requests import drawn_number, drawn_requests
from racegate.jobs.generated import drawn


class ScenarioDraw(StrEnum):
    """What scenarios are drawn.

    ENGINE: all that racegate's own engine can do; REQUESTS: requests and aborts alone, which
    releases can be asked for as well
    NUMBERS: a number alone, which a program is given
    """

    ENGINE = "engine"
    REQUESTS = "requests"
    NUMBERS = "numbers"


DRAWS = {
    ScenarioDraw.ENGINE: drawn,
    ScenarioDraw.REQUESTS: drawn_requests,
    ScenarioDraw.NUMBERS: drawn_number,
}
