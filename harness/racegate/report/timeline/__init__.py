"""Pictures of one run around one race, from one model of it.

`model` says what is drawn: lanes, operations in flight, the edges that a program has and the one
that it lacks. Every form of it is a module here, and decides only how it looks.
"""
