"""Explore: which schedules to run, which scenarios to draw, and how to make a failure smaller.

`ladder` climbs from cheap schedules to `dpor` and `samplers`; `canonical` turns an order into
holds; `generate` and `strategies` draw scenarios and holds; `shrink` leaves out what a failure does
not need. A new way to search is a file here. It must not know what is judged, nor how.
"""
