"""From a finding of a program to a change of its source that is proved: candidates, written at the
program's own lines, are run in memory, and the cheapest that repair everything are kept.

It knows the modules beside it, which judge; none of them knows it.
"""
