"""The harness: scenarios, devices, the asynchronous engine, oracles, search and reports."""

# The one place where it stands: the distribution takes it from here.
__version__ = "0.1.0"
