"""A gate's result in the forms that CI services show: JUnit, SARIF, GitHub's summary and
annotations. Reads, never runs.
"""
