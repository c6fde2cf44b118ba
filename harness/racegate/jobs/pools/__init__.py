"""Pools: where workers are, in this process, in several or on a cluster, and how tasks reach them.
A job sees `Pool` and its events only; nothing here knows what a task is about.
"""
