"""The version of racegate: the one place where it stands, from where the distribution takes it."""

__version__ = "0.1.0"
