"""A model that is spread over ranks: what each of them has of it, and where they meet. The ranks of
this room never look at one another's memory but through a collective.
"""
