"""Litmus programs in plain torch: small CUDA programs, racy and repaired in pairs.

Each module is a theme. `registry.load()` imports them all; `table` writes the README. Nothing here
knows the interposer: a driver binds `registry.observe` and calls the programs.
"""
