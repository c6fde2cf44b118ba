"""Workers on a Ray cluster: an actor each, on whichever node has a core for it.

The cluster is one that runs already, by its address, or one of this machine that is started for the
job and ends with it. Every node has to have the same racegate: workers are told what to do by name.
"""

from __future__ import annotations

import logging
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from typing import TYPE_CHECKING, Any, TypeVar, cast

from racegate.jobs.pools.driver import GoneError, Ready, Refused, said_of
from racegate.jobs.pools.pool import MakeWorker, SayAlive, Task, Worker, ended, worked
from racegate.scenario.errors import BadInputError
from racegate.scenario.untrusted.signals import TERMINATING

if TYPE_CHECKING:
    import ray

T = TypeVar("T")
R = TypeVar("R")

NEEDED = "Ray is not installed: pip install 'racegate[campaign]'"
# Of a killed actor's death, as Ray tells it.
REASON_LENGTH_MAX = 200
REACHED_WITHIN_S = 10.0
SIGN_EVERY_S = 1.0


class ClusterError(BadInputError):
    """A cluster that cannot be used, and why."""


class _Signs:
    """An actor that needs no core: counts signs of life, by the number of the worker."""

    def __init__(self) -> None:
        self._given: Counter[int] = Counter()

    def give(self, number: int) -> None:
        """One more."""
        self._given[number] += 1

    def given(self, number: int) -> int:
        """So many."""
        return self._given[number]


class _Served:
    """The actor: a worker of a pool, in a process of the cluster."""

    def __init__(self) -> None:
        self._worker: Worker[object, object] | None = None
        self._say_alive: SayAlive = lambda: None

    def start(self, make: MakeWorker[T, R], number: int, signs: Any) -> object:
        """Makes the worker. signs: the actor that counts its signs of life"""
        self._say_alive = seldom(lambda: signs.give.remote(number))

        def made() -> Ready:
            self._worker = cast("Worker[object, object]", make(number))
            return Ready()

        return said_of(made)

    def say(self, task: Task[T] | None) -> object:
        """One task; None: the end."""
        worker = self._worker
        assert worker is not None
        if task is None:
            return said_of(lambda: ended(worker))
        return said_of(lambda: worked(worker, task.content, self._say_alive))


def seldom(say_alive: Callable[[], object]) -> SayAlive:
    """The same, but not more often than once a second: each time it is a message."""
    said_at = -SIGN_EVERY_S

    def say() -> None:
        nonlocal said_at
        if (now := time.monotonic()) - said_at >= SIGN_EVERY_S:
            said_at = now
            say_alive()

    return say


class RayHandle:
    """See transport.Handle. answer: what is heard next; given: asks for its signs of life"""

    def __init__(self, actor: Any, answer: object, given: Callable[[], object]) -> None:
        self._actor = actor
        self._given = given
        self.answer = answer

    def send(self, task: Task[T] | None) -> None:
        """One call of the actor."""
        self.answer = self._actor.say.remote(task)

    def hear(self) -> object:
        import ray

        try:
            return ray.get(self.answer)
        except ray.exceptions.RayTaskError as error:
            # Not of the work, whose errors are said: the node did not understand the call.
            return Refused(f"a node of the cluster needs the same racegate: {_last_line(error)}")
        except ray.exceptions.RayError as error:
            # Of the actor, or of an answer that was lost with its node before it was fetched.
            raise GoneError(f"is gone: {_reason_of(error)}") from None

    def signs(self) -> int:
        """None where nobody answers who counts them."""
        import ray

        try:
            return int(ray.get(self._given(), timeout=REACHED_WITHIN_S))
        except ray.exceptions.RayError:
            return 0

    def kill(self) -> None:
        """Ends the actor's process."""
        import ray

        with suppress(ray.exceptions.RayError):
            ray.kill(self._actor)

    def close(self) -> None:
        """Ray waits for nobody."""


class RayTransport:
    """See transport.Transport. address: of a cluster, None starts one here; workers: at most so
    many, of which the first so many have one of the `gpus`

    Raises ClusterError.
    """

    def __init__(self, address: str | None, *, workers: int, gpus: int = 0) -> None:
        self._gpus = gpus
        with ExitStack() as undone:
            # Where results go, Ray tells of workers that died.
            undone.enter_context(redirect_stdout(sys.stderr))
            _join(address, workers)
            import ray
            import ray.util.scheduling_strategies

            undone.callback(ray.shutdown)
            _check_size(ray.cluster_resources(), workers, gpus)
            self._left = undone.pop_all()
        self._actor = ray.remote(_Served)
        # Where the driver is: any other node may be taken away, and nobody would count any more.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self._signs = ray.remote(num_cpus=0, scheduling_strategy=here)(_Signs).remote()

    def open(self, make: MakeWorker[T, R], number: int) -> RayHandle:
        """Starts an actor, wherever there is a core for it, and a GPU if it is to have one."""
        size = {"num_cpus": 1, "num_gpus": int(number < self._gpus)}
        actor = self._actor.options(**size, max_restarts=0, max_task_retries=0).remote()
        started = actor.start.remote(make, number, self._signs)
        return RayHandle(actor, started, lambda: self._signs.given.remote(number))

    def has_room(self) -> bool:
        """Whether a node has a core that nobody uses."""
        import ray

        return float(ray.available_resources().get("CPU", 0.0)) >= 1.0

    def wait(self, handles: Sequence[RayHandle], timeout_s: float) -> Sequence[RayHandle]:
        """Those whose answer is there, or whose actor is gone."""
        import ray

        answers = [handle.answer for handle in handles]
        ray.wait(answers, num_returns=1, timeout=timeout_s)
        # All that are there by now: a look at hundreds takes longer than an answer.
        ready = set(ray.wait(answers, num_returns=len(answers), timeout=0)[0])
        return [handle for handle in handles if handle.answer in ready]

    def close(self) -> None:
        """Leaves the cluster; one that was started for this ends."""
        self._left.close()


def _check_size(resources: Mapping[str, float], workers: int, gpus: int) -> None:
    """Raises ClusterError: Ray would wait for what is not there."""
    cores, cards = resources.get("CPU", 0.0), resources.get("GPU", 0.0)
    if cores < workers:
        raise ClusterError(
            f"the cluster has {cores:g} cores for {workers} workers: --workers {cores:g}, or "
            "another node"
        )
    if cards < gpus:
        raise ClusterError(
            f"the cluster has {cards:g} GPUs for {gpus} workers: --gpus {cards:g}, or another node"
        )


def _join(address: str | None, workers: int) -> None:
    """Raises ClusterError."""
    try:
        import ray
    except ImportError:
        raise ClusterError(NEEDED) from None
    if address is not None:
        _reach(address)
    stopped_by = {number: signal.getsignal(number) for number in TERMINATING}
    size = {"num_cpus": workers} if address is None else {}
    try:
        ray.init(
            address="local" if address is None else address,
            include_dashboard=False if address is None else None,
            configure_logging=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            **size,
        )
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        where = "here" if address is None else f"at {address}"
        raise ClusterError(f"no Ray cluster {where}: {str(error)[:500]}") from error
    finally:
        # Ray has its own idea of what they do.
        for number, handler in stopped_by.items():
            signal.signal(number, handler)


def _reach(address: str) -> None:
    """Whether anybody listens there: Ray itself would ask for minutes. Raises ClusterError."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise ClusterError(
            f"{address!r} is no address of a Ray cluster: HOST:PORT, as `ray start` says it"
        )
    try:
        socket.create_connection((host, int(port)), timeout=REACHED_WITHIN_S).close()
    except (OSError, OverflowError) as error:
        raise ClusterError(f"no Ray cluster at {address}: {error}") from error


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1][:REASON_LENGTH_MAX]


def _reason_of(error: ray.exceptions.RayError) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    told = next((line for line in lines if line.startswith("The actor is dead")), lines[0])
    return told.partition(" Worker exit type")[0][:REASON_LENGTH_MAX]
