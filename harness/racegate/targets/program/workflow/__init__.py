"""What a user keeps between runs of a program: witnesses and their replay, suppressions.

It knows the modules beside it, which judge; none of them knows it.
"""
