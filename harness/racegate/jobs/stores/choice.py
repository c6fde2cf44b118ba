"""Which store a user means."""

from __future__ import annotations

from pathlib import Path

from racegate.jobs.stores.folder import STATE_FILE, FolderStore
from racegate.jobs.stores.server import ServerStore, is_server
from racegate.jobs.stores.store import Store, StoreError

# In place of a fault's name.
NO_FAULT = "none"


def store_of(target: str, fault: str | None) -> Store:
    """A store by its path or URL, for campaigns with one fault or without: what is found with one
    is nothing to those without. Raises StoreError.
    """
    subject = fault or NO_FAULT
    if is_server(target):
        return ServerStore(target, subject)
    return FolderStore(Path(target) / subject)


def written_store(target: str, fault: str | None) -> Store:
    """The same of one that is there, or the folder of a single campaign. Raises StoreError."""
    if is_server(target):
        return store_of(target, fault)
    if (Path(target) / STATE_FILE).is_file():
        return FolderStore(Path(target))
    if (Path(target) / (fault or NO_FAULT)).is_dir():
        return store_of(target, fault)
    raise StoreError(f"{target}: neither a campaign's folder nor a store of its findings")
