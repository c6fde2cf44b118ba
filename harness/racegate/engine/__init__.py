"""The asynchronous engine under test: correct by default, every wait named."""
