"""An engine in vLLM's own environment: started once, asked for one run at a time."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import msgspec

from racegate.interpose.errors import BadInput, ExitCode
from racegate.interpose.launch import ANSWER
from racegate.interpose.outcome import DeviceKind, Ending, Outcome, Plan
from racegate.scenario.spec import Scenario
from racegate.vllm.environment import Environment
from racegate.vllm.wire import FAILED, Observed, Runner, StateMode, Task, Told

START_S = 600.0
RUN_S = 300.0


class Engine:
    """A started engine. start_s: how long it took to start; runs: how many were made
    cpu_s: of the processes of all runs
    """

    def __init__(self, jobs: int, answers: int, failed: Path) -> None:
        self._jobs = jobs
        self._answers = answers
        self._failed = failed
        self.start_s = 0.0
        self.runs = 0
        self.cpu_s = 0.0
        self._turns: tuple[Scenario | None, dict[str, int]] = (None, {})  # of the last recorded run

    def wait_until_started(self, within_s: float = START_S) -> None:
        """Raises BadInput if it does not start."""
        begun = time.perf_counter()
        if self._answer(within_s) is None:
            raise BadInput(f"the engine did not start within {within_s:g} s")
        self.start_s = time.perf_counter() - begun

    def run(
        self,
        scenario: Scenario,
        plan: Plan,
        *,
        plant: Observed | None = None,
        timeout_s: float = RUN_S,
    ) -> Told:
        """One run in a process of its own. plant: what is made wrong behind the runner's back"""
        self.runs += 1
        with tempfile.TemporaryDirectory(prefix="racegate-") as folder:
            result = Path(folder) / "result.json"
            turn = self._turn(scenario, plan)
            task = Task(scenario=scenario, plan=plan, result=str(result), plant=plant, turn=turn)
            os.write(self._jobs, msgspec.json.encode(task) + b"\n")
            pid = self._answer(None)
            assert pid is not None
            code = self._answer(timeout_s)
            if code is None:
                os.kill(pid, signal.SIGKILL)
                self._answer(None)
                text = f"the run did not end within {timeout_s:g} s"
                return Told(outcome=Outcome(ending=Ending.TIMED_OUT, message=text))
            if not result.exists():
                text = f"the run's process ended with exit code {code}; its message is above"
                return Told(outcome=Outcome(ending=Ending.LOST, exit_code=code, message=text))
            data = result.read_bytes()
        if code == ExitCode.NOT_MODELLED:
            return Told(outcome=msgspec.json.decode(data, type=Outcome))
        told = msgspec.json.decode(data, type=Told)
        self.cpu_s += told.cpu_s
        if plan.is_recording:
            self._turns = (scenario, told.turns)
        return told

    def _turn(self, scenario: Scenario, plan: Plan) -> int:
        """Of the engine's loop, before which nothing is held; 0 if it is not known."""
        recorded, turns = self._turns
        if recorded != scenario or plan.is_recording or not plan.holds:
            return 0
        return min(turns.get(operation, 0) for operation, _ in plan.holds)

    def _answer(self, within_s: float | None) -> int | None:
        ready, _, _ = select.select([self._answers], [], [], within_s)
        if not ready:
            return None
        answer = os.read(self._answers, ANSWER.size)
        if len(answer) < ANSWER.size:
            if self._failed.exists():
                raise BadInput(f"the engine did not start: {self._failed.read_text()}")
            raise BadInput("the engine did not start, or its process ended; its message is above")
        return int(ANSWER.unpack(answer)[0])


class FreshEngines:
    """An engine per run: of a GPU, which cannot be forked."""

    def __init__(
        self, environment: Environment, *, runner: Runner, mode: StateMode, log: Path | None
    ) -> None:
        self._open = partial(open_engine, environment, runner=runner, mode=mode, log=log)

    def run(self, scenario: Scenario, plan: Plan) -> Told:
        """One run under a plan."""
        with self._open(kind=DeviceKind.CUDA) as engine:
            return engine.run(scenario, plan)


@contextmanager
def open_engine(
    environment: Environment,
    *,
    runner: Runner,
    mode: StateMode,
    log: Path | None = None,
    kind: DeviceKind = DeviceKind.VIRTUAL,
) -> Iterator[Engine]:
    """Starts vLLM on a device. log: where what it prints goes, if not to stderr."""
    module = "racegate.vllm.inside.serve"
    with open_process(environment, module, (runner, mode), log=log, kind=kind) as engine:
        yield engine


@contextmanager
def open_process(
    environment: Environment,
    module: str,
    arguments: Sequence[str],
    *,
    log: Path | None = None,
    kind: DeviceKind = DeviceKind.VIRTUAL,
) -> Iterator[Engine]:
    """Starts an engine on a device. module: what runs in its environment; it is given a folder, the
    arguments and two pipes.
    """
    variables = environment.variables(kind)
    job_end, jobs = os.pipe()
    answers, answer_end = os.pipe()
    with tempfile.TemporaryDirectory(prefix="racegate-engine-") as folder:
        command = [
            str(environment.python), "-m", module, folder, *arguments,
            str(job_end), str(answer_end),
        ]  # fmt: skip
        errors = None if log is None else log.open("wb")
        process = subprocess.Popen(
            command,
            env=variables,
            pass_fds=(job_end, answer_end),
            process_group=0,
            stdin=subprocess.DEVNULL,
            stderr=errors,
        )
        os.close(job_end)
        os.close(answer_end)
        engine = Engine(jobs, answers, Path(folder) / FAILED)
        try:
            engine.wait_until_started()
            yield engine
        except BaseException:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            raise
        finally:
            os.close(jobs)
            process.wait()
            os.close(answers)
            if errors is not None:
                errors.close()
