"""What a product is: its settings, plan, order of steps, charge, costs, certificate and report."""
