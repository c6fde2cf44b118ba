"""What scenarios are drawn for targets."""

from __future__ import annotations

from enum import StrEnum

from racegate.jobs.foreign.features import drawn_features
from racegate.jobs.foreign.requests import drawn_number, drawn_requests
from racegate.jobs.generated import drawn


class ScenarioDraw(StrEnum):
    """What scenarios are drawn.

    ENGINE: all that racegate's own engine can do; REQUESTS: requests and aborts alone, which
    releases can be asked for as well
    FEATURES: requests and aborts with what releases of vLLM do besides
    NUMBERS: a number alone, which a program is given
    """

    ENGINE = "engine"
    REQUESTS = "requests"
    FEATURES = "features"
    NUMBERS = "numbers"


class RequestDraw(StrEnum):
    """What of it a release can be asked for."""

    REQUESTS = ScenarioDraw.REQUESTS.value
    FEATURES = ScenarioDraw.FEATURES.value


DRAWS = {
    ScenarioDraw.ENGINE: drawn,
    ScenarioDraw.REQUESTS: drawn_requests,
    ScenarioDraw.FEATURES: drawn_features,
    ScenarioDraw.NUMBERS: drawn_number,
}
