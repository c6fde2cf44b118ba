"""Mutation of the source: one edit at a time, in a process of its own, judged by the gate or by the
tests.
"""
