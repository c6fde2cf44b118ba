"""Pictures of one run around the pair of a finding, from one model of it; and the page they are on.

`model` says what there is to draw: lanes, operations in flight, who sits where, the edges that a
program has and the one that it lacks; `moments` what of it is shown. Every form is a module here,
and decides only how it looks.
"""
