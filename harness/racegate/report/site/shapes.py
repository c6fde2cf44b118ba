"""What of other files of figures is shown: files of earlier versions have the same, and more."""

from __future__ import annotations

import msgspec


class Checks(msgspec.Struct, frozen=True, kw_only=True):
    """What a job found out about itself."""

    canaries: int = 0
    canaries_found: int = 0
    double_runs: int = 0
    mismatches: int = 0


class CampaignFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A campaign. verdicts: scenarios by what they came to"""

    seed: int
    schedules: int
    verdicts: dict[str, int]
    seconds: float
    selfcheck: Checks | None = None

    @property
    def scenarios(self) -> int:
        """How many were looked at."""
        return sum(self.verdicts.values())

    @property
    def per_second(self) -> float:
        """Schedules, of all workers together."""
        return self.schedules / self.seconds if self.seconds else 0.0


class CampaignFile(msgspec.Struct, frozen=True, kw_only=True):
    """known, new: signatures found, before this run and in it"""

    campaign: CampaignFigures
    known: tuple[object, ...] = ()
    new: tuple[object, ...] = ()

    @property
    def findings(self) -> int:
        """All signatures."""
        return len(self.known) + len(self.new)


class ReplacedCampaign(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a campaign that a later one replaced. A campaign that did not check itself
    has no `canaries` and no `double_runs`.
    """

    name: str
    seed: int
    scenarios: int
    proved: int
    schedules: int
    findings: int
    seconds: float
    canaries: int = 0
    canaries_found: int = 0
    double_runs: int = 0
    mismatches: int = 0

    @property
    def file(self) -> CampaignFile:
        """The same as the file of a campaign has it."""
        others = self.scenarios - self.proved
        verdicts = {"PROVED": self.proved} | ({"INCONCLUSIVE": others} if others else {})
        checks = Checks(
            canaries=self.canaries,
            canaries_found=self.canaries_found,
            double_runs=self.double_runs,
            mismatches=self.mismatches,
        )
        figures = CampaignFigures(
            seed=self.seed,
            schedules=self.schedules,
            verdicts=verdicts,
            seconds=self.seconds,
            selfcheck=checks if self.canaries or self.double_runs else None,
        )
        return CampaignFile(campaign=figures, known=("",) * self.findings)


class ProgramFile(msgspec.Struct, frozen=True, kw_only=True):
    """A program that nobody here wrote. expected: racy or silent; public: where it is reported"""

    name: str
    releases: dict[str, str]
    expected: str
    public: str
    verdict: str
    events: int
    runs: int
    cpu_s: float

    @property
    def is_right(self) -> bool:
        """Whether the verdict is what is expected."""
        return (self.verdict == "no conflict") == (self.expected == "silent")


class LitmusVirtual(msgspec.Struct, frozen=True, kw_only=True):
    """A litmus program on the virtual device. shown: the search came to another value"""

    name: str
    expected: str
    right: bool
    observable: bool = False
    shown: bool = False


class SanitizerProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A litmus program on a GPU. sanitizer: what PyTorch's says of it"""

    expected: str
    sanitizer: tuple[object, ...] = ()


class SanitizerFile(msgspec.Struct, frozen=True, kw_only=True):
    """Litmus programs on a GPU, beside PyTorch's sanitizer."""

    device: str
    programs: tuple[SanitizerProgram, ...]
