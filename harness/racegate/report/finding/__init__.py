"""The page of a finding, whatever was judged: our own engine, a program, a release, an adapter.

`pictured` is what a page shows of one; `material` gathers it of a run of our own engine or of an
adapter, `race` of two places of a program or a release; `page` has the one form that all share.
"""
