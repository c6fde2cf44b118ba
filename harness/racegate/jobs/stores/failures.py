"""The last failures of a job, kept on this machine: its next run begins with them, so that somebody
who repaired something knows it before all the rest is run.

They are witnesses in a folder of the user's cache directory, one folder for each job in each
working directory. Nothing depends on them: what cannot be read or written is told, and the job goes
on.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

import msgspec

from racegate.check.checker import Checkers
from racegate.check.repro.replay import replay
from racegate.history.breakage import Caught
from racegate.history.replayed import ReplayOutcome, ReplaySummary
from racegate.history.witness import (
    ENGINE_WITNESSES,
    AnyWitness,
    SealedWitness,
    Witness,
    WitnessError,
    WitnessReader,
    save,
)
from racegate.jobs.pools.time_limit import limited_time
from racegate.scenario.spec import OwnScenario
from racegate.targets.common.environment import cache_folder

# Of one job: replaying them has to stay short beside the job itself.
FAILURES_MAX = 8
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class LastFailures:
    """Those of one job. folder: where they are, if there are any; say: is told what they show"""

    folder: Path
    say: Say

    def read(self, reader: WitnessReader[AnyWitness]) -> list[tuple[Path, AnyWitness]]:
        """What is there. What cannot be used is told, and removed."""
        found = []
        for path in sorted(self.folder.glob("*.witness.json")):
            try:
                found.append((path, reader.load(path)))
            except WitnessError as error:
                self.say(f"a failure of the last run is forgotten, because it is no use: {error}")
                with suppress(OSError):
                    path.unlink()
        return found

    def replay(
        self, kept: Iterable[tuple[Path, AnyWitness]], again: Callable[[AnyWitness], ReplaySummary]
    ) -> tuple[Path, ...]:
        """Replays each, says what it shows now, and gives the files. again: replays one once"""
        done = []
        for path, witness in kept:
            done.append(path)
            title, command = witness.title, f"racegate replay {quote(str(path))}"
            with Caught(title, command=command, through=()) as caught:
                self._tell(title, again(witness), command)
            if caught.breakage is not None:
                self.say(f"last failure first: it cannot be replayed: {caught.breakage.text}")
        return tuple(done)

    def _tell(self, title: str, found: ReplaySummary, command: str) -> None:
        if found.outcome is ReplayOutcome.REPRODUCED:
            told = f"still there: {found.expected_signature}; {command}"
        elif found.outcome is ReplayOutcome.OTHER and found.signature is not None:
            told = f"another one now: {found.signature}, it was {found.expected_signature}"
        else:
            told = f"{found.outcome} under the holds that showed {found.expected_signature}"
        self.say(f"last failure first: {title}: {told}")

    def keep(self, witnesses: Sequence[SealedWitness], replayed: Iterable[Path]) -> None:
        """These are the failures now, in the place of those that were replayed."""
        new = {self._place_of(one): one for one in witnesses[:FAILURES_MAX]}
        try:
            if new:
                self.folder.mkdir(parents=True, exist_ok=True)
            for path, witness in new.items():
                save(witness, path)
            # A kill in between leaves some that show nothing any more; the next run drops them.
            for path in set(replayed) - new.keys():
                path.unlink(missing_ok=True)
        except OSError as error:
            self.say(f"the next run will not begin with these failures: {error}")

    def _place_of(self, witness: SealedWitness) -> Path:
        return self.folder / f"{_digest(f'{witness.title}|{witness.signature}')}.witness.json"


def last_failures(job: Sequence[str], say: Say) -> LastFailures:
    """Of a job in this folder. job: the words that tell it from others"""
    name = _digest("\0".join([str(Path.cwd()), *job]))
    try:
        return LastFailures(cache_folder("last") / name, say)
    except RuntimeError:  # a user without a home: nothing is kept, and `keep` says so
        return LastFailures(Path(os.devnull, name), say)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def replay_scenarios(
    failures: LastFailures, scenarios: Iterable[OwnScenario], *, timeout_s: float
) -> tuple[Path, ...]:
    """Those of scenarios that are run now, as they are now. timeout_s: for each, 0 is no limit"""
    present, checkers = {scenario.name: scenario for scenario in scenarios}, Checkers()

    def again(witness: Witness) -> ReplaySummary:
        now = msgspec.structs.replace(witness, scenario=present[witness.scenario.name])
        with limited_time(timeout_s, f"the last failure of {witness.scenario.name}"):
            return replay(now, times=1, command="", checkers=checkers)

    kept = failures.read(ENGINE_WITNESSES)
    return failures.replay([one for one in kept if one[1].scenario.name in present], again)
