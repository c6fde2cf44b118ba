"""Evaluation: what the tool itself is worth. The kill matrix (cells, kills, strategies, matrix),
mutants of the edges, the effort of finding a fault, the truth table of the count path.

What is measured here is in reports/faults: a change of a cell is a change of the report.
It knows faults, searches and jobs; nothing that a user's gate runs may need it.
"""
