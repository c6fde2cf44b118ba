"""Repro: from a conflict to the smallest holds that show what it does, to a witness, and back.

`search` climbs the ladder for one scenario, `minimise` leaves out what a failure does not need,
`replay` runs a witness again, `explain` says why. What a witness holds is history's business. It
must not know of jobs, of many scenarios, or of who reads the results.
"""
