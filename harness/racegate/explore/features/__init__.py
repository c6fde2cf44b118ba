"""Features: what a scenario is set to and what its run went through, and which pairs occur.

`facts` reads a run into plain data; `steps`, `lives` and `prefixes` are predicates over it;
`catalogue` names the features, says why a runner goes wrong there and which pairs cannot be;
`table` counts. Nothing here runs or judges anything.
"""
