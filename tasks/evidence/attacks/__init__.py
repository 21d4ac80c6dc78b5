"""Attacks on releases: functions of arrays that see a release and public knowledge alone.

Results are graded by the truth, which only functions with an argument `truth` take. All blocks of a
release share one `systems.TableSystem`, built from the table cell of every cell of the schema; a
release is bounds of its rows, integers of shape `(blocks, rows)`:

    system = system_of_tables([codes of table 1, codes of table 2, ...])
    found = reconstruct(system, lower, upper, seed=0, effort=Effort())
    found.block, found.cell, found.count, found.status, found.solution_variability()

Blocks are independent, so that pieces of them may be rebuilt in other processes and concatenated.
"""
