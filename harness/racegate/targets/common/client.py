"""An engine in an environment of its own: started once, asked for one run at a time. Its siblings,
which it was forked into when it had started, are asked beside it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from racegate.history.schedule import FORCED, texts_of
from racegate.interpose.outcome import DeviceKind, Ending, Plan, Sources
from racegate.interpose.program.timeouts import where_it_stood
from racegate.scenario.spec import Request, Scenario
from racegate.targets.common.environment import Environment
from racegate.targets.common.server import ForkServer, ServerStreams, open_servers
from racegate.targets.common.wire import (
    AS_IT_IS,
    DRAFTED_BEHIND,
    FAILED,
    NOTHING_HELD,
    SOURCES,
    Fidelity,
    Observed,
    ReleaseRun,
    RunMode,
    SourceOptions,
    Task,
)

RUN_S = 300.0
UNSEEN = "pinned memory"  # what is touched or may be, and is not followed, by its kind


class Engine:
    """A started engine. runs: how many were made; cpu_s: of the processes of all runs
    fidelity: whether the model computes; run_s: seconds that one run may take
    siblings: the same engine in processes of their own, which end with it
    """

    def __init__(
        self,
        servers: Sequence[ForkServer],
        *,
        fidelity: Fidelity = Fidelity.HOLLOW,
        run_s: float = RUN_S,
    ) -> None:
        self._server, *others = servers
        self.siblings = tuple(Engine((one,), fidelity=fidelity, run_s=run_s) for one in others)
        self._run_s = run_s
        self.fidelity = fidelity
        self._plain: tuple[Scenario, ReleaseRun] | None = None  # of the last one
        self.runs = 0
        self.cpu_s = 0.0
        self._base: tuple[Scenario, ReleaseRun] | None = None  # the last recorded run
        self._has_baseline: bool | None = None  # to that run; None if it is not known
        self._landed: dict[str, ReleaseRun] = {}  # by its hold: runs forked from the last held one

    @property
    def start_s(self) -> float:
        """How long it took to start."""
        return self._server.start_s

    def run(
        self,
        scenario: Scenario,
        plan: Plan,
        *,
        plant: Observed | None = None,
        spoils: str = "",
        timeout_s: float | None = None,
        sources: SourceOptions = AS_IT_IS,
    ) -> ReleaseRun:
        """One run in a process of its own. plant, spoils: what is made wrong behind the runner's
            back, spoils as a pattern of the names of tensors or as what the scheduler tells
        timeout_s: seconds that it may take; None for those of the engine
        sources: what is done with the engine's own
        """
        timeout_s = self._run_s if timeout_s is None else timeout_s
        self.runs += 1
        base = self._base[1] if self._base is not None and self._base[0] == scenario else None
        task = Task(
            scenario=scenario,
            plan=plan,
            result="",
            plant=plant,
            spoils=spoils,
            sources=sources,
        )
        is_other = plant is not None or bool(spoils) or sources.edit is not None
        if base is None or plan.is_recording or not plan.holds or is_other:
            told = self._ask(task, timeout_s)
        else:
            told = self._held(task, base, timeout_s)
        if plan.is_recording and sources == AS_IT_IS:
            self._base, self._has_baseline, self._landed = (scenario, told), None, {}
        return told

    def _held(self, task: Task, base: ReleaseRun, timeout_s: float) -> ReleaseRun:
        """A run under holds, of which the same scenario was recorded just before."""
        if self._has_baseline is None:
            self._has_baseline = self._make_baseline(task.scenario, base, timeout_s)
        turn = min(base.turns.get(hold.operation, 0) for hold in task.plan.holds)
        run_mode = RunMode.CONVERGING if self._has_baseline else RunMode.WHOLE
        task = msgspec.structs.replace(task, turn=turn, run_mode=run_mode)
        told = self._landing(task)
        if told is None and self._has_landings(task.plan):
            told = self._ask(msgspec.structs.replace(task, lands=True), timeout_s)
        if told is None or told.ending in (Ending.TIMED_OUT, Ending.LOST):
            told = self._ask(task, timeout_s)
        return completed(told, base) if told.has_converged else told

    def _has_landings(self, plan: Plan) -> bool:
        """Whether it comes to all gaps of one operation. What computes takes too long for all."""
        is_longest = [hold.until for hold in plan.holds] == [FORCED]
        return is_longest and _only_holds(plan) and self.fidelity is Fidelity.HOLLOW

    def _landing(self, task: Task) -> ReleaseRun | None:
        """A run that was made together with the one that holds the operation longest."""
        hold, *others = texts_of(task.plan.holds)
        return None if others or not _only_holds(task.plan) else self._landed.pop(hold, None)

    def _make_baseline(self, scenario: Scenario, base: ReleaseRun, timeout_s: float) -> bool:
        """Whether runs may end where they have become the one without holds: not if the host reads
        what nobody sees.
        """
        if not base.turns or any(UNSEEN in kind for kind in base.not_seen):
            return False
        task = Task(scenario=scenario, plan=NOTHING_HELD, result="", run_mode=RunMode.BASELINE)
        return self._ask(task, timeout_s).seen == base.seen

    def _decoded_plainly(self, scenario: Scenario, timeout_s: float) -> ReleaseRun:
        """What an engine that computes says in plain decoding, which it is asked for first."""
        if self._plain is None or self._plain[0] != scenario:
            plain = plain_of(scenario)
            task = Task(scenario=plain, plan=NOTHING_HELD, result="", run_mode=RunMode.PLAIN)
            self._plain = scenario, self._ask(task, timeout_s)
        return self._plain[1]

    def _ask(self, task: Task, timeout_s: float) -> ReleaseRun:
        """One task, in a process of its own. Where plain decoding comes to no end there is nothing
        to compare it with, and it ends as that did.
        """
        if self.fidelity is Fidelity.FULL and task.run_mode is not RunMode.PLAIN:
            plain = self._decoded_plainly(task.scenario, timeout_s)
            if plain.ending is not Ending.FINISHED:
                message = f"plain decoding of the same requests: {plain.message}"
                return msgspec.structs.replace(plain, message=message)
            task = msgspec.structs.replace(task, plain=plain.delivered)
        with tempfile.TemporaryDirectory(prefix="racegate-") as folder:
            result = Path(folder) / "result.json"
            task = msgspec.structs.replace(task, result=str(result))
            code = self._server.run(task, timeout_s)
            if code is None:
                text = f"the run did not end within {timeout_s:g} s{where_it_stood(result.parent)}"
                return ReleaseRun(ending=Ending.TIMED_OUT, message=text)
            if not result.exists():
                text = f"the run's process ended with exit code {code}; its message is above"
                return ReleaseRun(ending=Ending.LOST, exit_code=code, message=text)
            data = result.read_bytes()
            if task.lands:
                self._landed = landings_beside(result)
                self.cpu_s += sum(told.cpu_s for told in self._landed.values())
        told = msgspec.json.decode(data, type=ReleaseRun)
        self.cpu_s += told.cpu_s
        return told


def plain_of(scenario: Scenario) -> Scenario:
    """What is decoded plainly: the requests of a scenario with all that can be drafted of them, one
    after the other. Beside others vLLM pads a prompt of one token with places for drafts, and
    recurrent states would go on from these.
    """
    alone: list[Request] = []
    arrive = 0
    for request in scenario.requests:
        most = request.max_tokens + DRAFTED_BEHIND
        alone.append(msgspec.structs.replace(request, arrive=arrive, max_tokens=most))
        arrive += len(request.prompt) + most
    return msgspec.structs.replace(
        scenario, requests=tuple(alone), events=(), steps_max=max(scenario.steps_max, arrive)
    )


def _only_holds(plan: Plan) -> bool:
    return plan == Plan(holds=plan.holds, is_recording=False)


def landings_beside(result: Path) -> dict[str, ReleaseRun]:
    """The results of the runs that were forked from one, by their only hold."""
    found = {}
    for path in result.parent.glob(f"{result.name}.*"):
        told = msgspec.json.decode(path.read_bytes(), type=ReleaseRun)
        found.update(dict.fromkeys(told.realised, told))
    return found


def completed(told: ReleaseRun, base: ReleaseRun) -> ReleaseRun:
    """A run under holds that has become the one without, as if it had gone on to its end."""
    own = ("events", "not_seen", "realised", "gaps", "cpu_s")
    kept = {name: getattr(told, name) for name in own}
    return msgspec.structs.replace(base, findings=(), turns={}, has_converged=True, **kept)


@contextmanager
def open_process(
    environment: Environment,
    module: str,
    arguments: Sequence[str],
    *,
    log: Path | None = None,
    kind: DeviceKind = DeviceKind.VIRTUAL,
    sources: Sources = (),
    count: int = 1,
) -> Iterator[Sequence[ForkServer]]:
    """Starts an engine on a device. module: what runs in its environment; it is given a folder, the
    arguments and two pipes for each of so many servers. sources: texts that it reads in the place
    of its files, as of a Job
    """
    with tempfile.TemporaryDirectory(prefix="racegate-engine-") as folder:
        if sources:
            (Path(folder) / SOURCES).write_bytes(msgspec.json.encode(sources))
        command = [str(environment.python), "-m", module, folder, *arguments]
        failed = Path(folder) / FAILED
        variables = environment.variables(kind)
        streams = ServerStreams(log=log)
        with open_servers(
            command, variables, what="the engine", count=count, failed=failed, streams=streams
        ) as servers:
            yield servers
