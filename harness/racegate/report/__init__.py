"""Reports: renderings of results, on a terminal, as pages and as the contract of the JSON objects.

A new page is a module and a template here; the order and wording of what is shown may change. It
must not run anything or decide anything: what it shows was decided below.
"""
