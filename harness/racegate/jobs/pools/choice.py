"""Which pool a job gets. Its words are options' types, so every command imports this: a pool's own
modules are imported where one is made.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from racegate.jobs.pools.driver import DrivenPool
from racegate.jobs.pools.pool import InProcessPool, Pool


class PoolBackend(StrEnum):
    """Where workers are."""

    LOCAL = "local"
    RAY = "ray"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPlace:
    """Where a job's workers are. address: of a Ray cluster, None for one that is started here
    gpus: so many workers, the first, have a GPU of their own, as a cluster sees to
    """

    backend: PoolBackend = PoolBackend.LOCAL
    address: str | None = None
    gpus: int = 0


HERE = WorkerPlace()


def pool_of(
    workers: int, *, timeout_s: float = 0.0, place: WorkerPlace = HERE, losses_max: int = 1
) -> Pool:
    """One worker needs no process of its own. timeout_s: for each task; 0 is no limit; losses_max:
    see DrivenPool

    Raises ClusterError.
    """
    if place.backend is PoolBackend.RAY:
        from racegate.jobs.pools.cluster import RayTransport

        cluster = RayTransport(place.address, workers=workers, gpus=place.gpus)
        return DrivenPool(cluster, silent_s=timeout_s or None, losses_max=losses_max)
    if workers == 1:
        return InProcessPool(timeout_s=timeout_s)
    from racegate.jobs.pools.processes import process_pool

    return process_pool(silent_s=timeout_s or None, losses_max=losses_max)
