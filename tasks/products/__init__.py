"""Products: settings, plan, order of steps, charge, costs, certificate and report."""
