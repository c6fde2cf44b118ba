"""Search that learns: scenarios like those that reached what few others did.

A scenario is known by the choices that it was drawn with, which can be changed and crossed over;
what it reached, by pairs of features, edges and orderings.
"""
