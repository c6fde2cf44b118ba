"""Reports of what `racegate.measure` measures, and the objects that its commands print.

A user's gate needs none of them: beside this folder only the site, the contract of JSON and the
commands that measure import it.
"""
