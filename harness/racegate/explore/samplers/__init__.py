"""Samplers: seeded steppers that choose at random, one per file; `portfolio` knows them by name.

A new one is a file with a stepper, and its name and maker in `portfolio`. A sampler sees steps and
their footprints, and must not know what program they are of.
"""
