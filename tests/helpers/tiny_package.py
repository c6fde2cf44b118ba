"""A package of pure Python that races or waits, as wheels in a folder."""

from __future__ import annotations

import zipfile
from pathlib import Path

PACKAGE = "racegate-tiny"
# What the package does, and what uses it: a buffer that is filled again while it may be read.
TINY = """
import torch

def upload(values, host, waits={waits}):
    seen = []
    for value in values:
        host.fill_(value)
        seen.append(host.to("cuda", non_blocking=True))
        if waits:
            torch.cuda.synchronize()
    return torch.stack(seen)
"""
PROGRAM = """
import torch
import racegate_tiny
from racegate.interpose import observe

host = torch.zeros(4, pin_memory=True)
observe("seen", racegate_tiny.upload([1.0, 2.0], host).sum().item())
"""


def wheel(folder: Path, version: str, content: str, requires: str = "") -> None:
    """A wheel of pure Python, as an index has it."""
    name = f"racegate_tiny-{version}"
    metadata = f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {version}\n{requires}"
    about = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(folder / f"{name}-py3-none-any.whl", "w") as archive:
        archive.writestr("racegate_tiny.py", content)
        archive.writestr(f"{name}.dist-info/METADATA", metadata)
        archive.writestr(f"{name}.dist-info/WHEEL", about)
        archive.writestr(f"{name}.dist-info/RECORD", "")
