"""Check: one scenario under one schedule, with or without a fault, run and judged.

`checker.Checker` is what rooms above use; behind it `subject` runs, `expected` asks the reference,
`judge` asks the oracles and `findings` words what they saw. `sharing` runs many schedules of one
scenario; `selfcheck` asks whether a job would have found anything. All of it may change as long as
runs stay the same bit for bit. It must not know which schedules are worth running, nor who asks.
"""
