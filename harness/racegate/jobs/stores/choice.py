"""Which store a user means."""

from __future__ import annotations

from pathlib import Path

from racegate.jobs.stores.folder import STATE_FILE, FolderStore
from racegate.jobs.stores.server import ServerStore, is_server
from racegate.jobs.stores.store import Store, StoreError

# In place of a fault's name.
NO_FAULT = "none"
# Before a target's name. No fault has a dot in its own.
TARGET = "target."


def subject_of(target: str) -> str:
    """What the campaign on a target of a fleet is known by, in place of a fault."""
    return f"{TARGET}{target}"


def store_of(where: str, subject: str | None) -> Store:
    """A store by its path or URL, for campaigns with one fault, on one target or on the engine as
    it is: what is found with one is nothing to the others. Raises StoreError.
    """
    if is_server(where):
        return ServerStore(where, subject or NO_FAULT)
    return FolderStore(Path(where) / (subject or NO_FAULT))


def written_store(where: str, subject: str | None) -> Store:
    """The same of one that is there, or the folder of a single campaign; a fleet's folder may have
    nothing but targets. Raises StoreError.
    """
    if is_server(where):
        return store_of(where, subject)
    if (Path(where) / STATE_FILE).is_file():
        return FolderStore(Path(where))
    is_there = (Path(where) / (subject or NO_FAULT)).is_dir()
    if is_there or (subject is None and stores_of_targets(where)):
        return store_of(where, subject)
    raise StoreError(f"{where}: neither a campaign's folder nor a store of its findings")


def stores_of_targets(where: str) -> dict[str, Store]:
    """By the names of targets that a fleet has there. Raises StoreError."""
    if is_server(where):
        subjects = ServerStore(where, NO_FAULT).subjects()
    else:
        subjects = [path.name for path in Path(where).glob(f"{TARGET}*") if path.is_dir()]
    names = sorted(one.removeprefix(TARGET) for one in subjects if one.startswith(TARGET))
    return {name: store_of(where, subject_of(name)) for name in names}
