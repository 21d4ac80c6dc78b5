"""Attacks on releases: functions of arrays that see a release and public knowledge alone.

Results are graded by the truth, which only functions with an argument `truth` take. All blocks of a
release share one `systems.TableSystem`, built from the table cell of every cell of the schema; a
release is bounds of its rows, integers of shape `(blocks, rows)`:

    system = system_of_tables([codes of table 1, codes of table 2, ...])
    found = reconstruct(system, lower, upper, seed=0, effort=Effort())
    found.block, found.cell, found.count, found.status, found.solution_variability()

    histograms = likeliest_of_blocks(system, published, costs)    # costs(figure) -> RowCosts
    perturbation_costs(figure, chance, reach)

Blocks are independent, so that pieces of them may be rebuilt in other processes and `joined`.

    share = agreement(keys of the truth, keys of the rebuilt records)
    guesses = reidentify(known keys, released keys, released feature, truth)
    mode, proportional = guessed(block, truth, counts, areas, leave_one_out=True)
    guesses.rates(group).precision, guesses.rates_by_group({"nonmodal": ~is_modal(...)})

The ceiling is `reidentify` on the records of the truth.

    inside, outside = (optimal_statistic(answers, difference, variance) for answers in ...)
    measured_test(inside, outside, false_positive_rate)
    GaussianTradeoff.of_rho(rho).true_positive_rate(.01), one_run_epsilon_bound(right, guesses)

    zoning = zonings(zone of every unit in one zoning, zone of every unit in the other)
    slivers = differences(zoning, largest_group=2)
    found = slivers.figures(published of the first's zones, published of the second's)
    bounds = slivers.bounds((lower, upper), (lower, upper))
    exposed(slivers, zoning, found, bounds, truth, threshold)

    recovered(np.rint(least_squares(system, published)), truth)

    found = linked(known key, known place, released key, released place)
    graded(found, truth)
"""
