"""A campaign over several targets: revisions, releases, adapters, devices. Each is judged by a
command in a process of its own, on scenarios that are the same for all of them.
"""
