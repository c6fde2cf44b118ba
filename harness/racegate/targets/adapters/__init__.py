"""Engines that live elsewhere, each in a process and an environment of its own: the protocol, the
process and its limits, how a history becomes a trace, how it is judged, and what an adapter has to
show before it is believed.

A new engine needs an adapter on its side (docs/bring_your_own_runner.md), and nothing here. This
room knows frozen data and the oracles that judge one run. It must not know the engine of this
repository or its reference: that one is served as a foreign one, from `check`.
"""
