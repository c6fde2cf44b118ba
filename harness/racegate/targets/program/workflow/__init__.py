"""What a user keeps between runs of a program, and runs in tests: witnesses and their replay,
suppressions, the pytest plugin.

It knows the modules beside it, which judge; none of them knows it.
"""
