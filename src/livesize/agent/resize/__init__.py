"""Changes the limits of a running pod: plan, then apply."""
