"""The reference engine: the definition, in NumPy, one request after another.

PYTEST_DONT_REWRITE: pytest may begin in a process that has imported this, and would warn of it.
"""
