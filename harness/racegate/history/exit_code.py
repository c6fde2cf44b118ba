"""Exit codes: what a command tells a script that reads nothing else."""

from __future__ import annotations

import signal
from enum import IntEnum


def code_of_signal(number: int) -> int:
    """What a process that a signal ended exits with, as shells have it."""
    return 128 + number


INTERRUPTED = code_of_signal(signal.SIGINT)
UNREAD = code_of_signal(signal.SIGPIPE)  # nobody read its output to the end


class ExitCode(IntEnum):
    """What a command ends with; of several that fit, the first of 3, 1, 4, 0.

    CLEAN: nothing is wrong, and all that had to be exercised was
    FINDING: a wrong value or a missing order; of `replay` the failure that was recorded; of `gate`
        also a witness that must fail and did not; of `ab` an engine without a fault that was wrong,
        or a held run that showed nothing; of `faults mutate` a mutant that survives; of `faults
        matrix` a fault that does not show as it should, or less than in an earlier matrix
    BAD_INPUT: wrong usage, or a file, name or argument that cannot be used; nothing was run
    BROKEN_HARNESS: the harness cannot be believed: a canary not found, two runs of one schedule
        that differ; of `bench` a benchmark that failed; of `ab`
        a truth that is not the CPU's; of `soak` a run that hung, failed, had to be ended or left
        another trace; of `adapter` an adapter that does not conform, or says what cannot be; of
        `torch run` a program that asked CUDA for something that is not modelled; of `fleet` a
        target that gave no answer; of `campaign verify` something found that does not replay; of
        `campaign bisect` two replays that differ
    INCONCLUSIVE: something was not exercised: a hold not realised, what the scenario promises, any
        overlap at all; of `repair` a conflict that is left, where runs were spent; of `fuzz` also a
        worker that did not come to its last canaries; of `fleet` a target that no worker can run;
        of `campaign verify` too few scenarios; of `campaign bisect` revisions in question that
        cannot be asked; of `soak` a scenario of which nothing was held; of `ab` waves that are
        missing; of `mutate` no mutant that matters
    OTHER_SIGNATURE: of `replay` alone: another failure than the recorded one
    NOTHING_FOUND: of `replay` alone: no failure
    SCRIPT_FAILED: of `torch run` and `repair`: the script failed by itself, and no conflict was
        found until then; its own code is in the report
    """

    CLEAN = 0
    FINDING = 1
    BAD_INPUT = 2
    BROKEN_HARNESS = 3
    NOT_MODELLED = 3
    INCONCLUSIVE = 4
    OTHER_SIGNATURE = 5
    NOTHING_FOUND = 6
    SCRIPT_FAILED = 7
