"""Scenario files and witnesses as tests of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from racegate.check.repro.replay import replay
from racegate.cli.options import Explore
from racegate.cli.testing.settings import TrialSettings
from racegate.cli.testing.trial import Trial, check_verdict, run_trial
from racegate.history.replayed import ReplayOutcome
from racegate.history.witness import load_witness
from racegate.scenario.errors import BadInputError
from racegate.scenario.files import load


class RacegateFile(pytest.File):
    """A scenario or a witness. settings: set by whoever collects it"""

    settings: TrialSettings

    def collect(self) -> Iterator[pytest.Item]:
        """One test, named after the file."""
        kind = WitnessItem if self.path.name.endswith(".witness.json") else ScenarioItem
        item: RacegateItem = kind.from_parent(self, name=self.path.name.split(".")[0])
        item.settings = self.settings
        yield item


class RacegateItem(pytest.Item):
    """A file as a test. A file that cannot be used fails without a stack of the harness."""

    settings: TrialSettings

    def runtest(self) -> None:
        """See pytest."""
        wrong = ""
        try:
            self.judge()
        except BadInputError as error:
            wrong = str(error)
        if wrong:
            pytest.fail(wrong, pytrace=False)

    def judge(self) -> None:
        """Fails the test if the file is not as it should be. Raises BadInputError."""
        raise NotImplementedError


class ScenarioItem(RacegateItem):
    """A scenario that has to be proved, by the ladder where a conflict exists."""

    def judge(self) -> None:
        """Fails unless it is."""
        trial = Trial(scenario=load(self.path), source=str(self.path), explore=Explore.LADDER)
        check_verdict(self, run_trial(self, trial, self.settings), self.settings)

    def reportinfo(self) -> tuple[str, int | None, str]:
        return str(self.path), None, f"scenario {self.name}"


class WitnessItem(RacegateItem):
    """A witness that still has to show what it was recorded for."""

    def judge(self) -> None:
        """Fails unless it does."""
        command = f"racegate replay {self.path}"
        witness = load_witness(self.path)
        found = replay(witness, times=1, command=command)
        self.user_properties += [
            ("racegate.outcome", str(found.outcome)),
            ("racegate.signature", found.signature or ""),
        ]
        if found.outcome is not ReplayOutcome.REPRODUCED:
            seen = found.signature or "no finding"
            text = f"{found.outcome}: expected {witness.signature}, seen {seen}\nreplay: {command}"
            pytest.fail(text, pytrace=False)

    def reportinfo(self) -> tuple[str, int | None, str]:
        return str(self.path), None, f"witness {self.name}"
