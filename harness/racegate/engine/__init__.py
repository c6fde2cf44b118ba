"""The asynchronous engine: a scheduler and a runner, with up to `depth` steps in flight.

Inner rooms, from below: state, scheduling, model, cache, decode, observe, rows. `engine` runs the
loop, `assembly` puts a runner together, `parts` says what of all this a fault may exchange.
Change here how steps are scheduled, prepared, run and observed. Everything that reaches the device
goes through `racegate.device`, and every wait names an edge of `state/edges`.
It must not know faults, oracles, schedules or the reference: it never asks whether it is right.
"""
