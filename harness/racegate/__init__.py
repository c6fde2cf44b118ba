"""The harness: scenarios, devices, the asynchronous engine, oracles, search and reports."""

from importlib.metadata import version

__version__ = version("racegate")
