"""The static CPU policy: whole CPUs for one container alone, and the pool that all others share."""
