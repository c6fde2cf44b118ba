"""Scenario: what happens in a run, as frozen data: requests, events, sizes, drawn numbers.

Here: the specification (spec), files as people write them (entries, files, request_log), what is
refused (validation, errors), options settled against each other (config), draws.
Change it with reference/DEFINITION.md, which says what every field means; old files must load.
It imports no other room, and must not know that operations, schedules or oracles exist.
"""
