"""Rolls a Deployment from one template to the next, through its ReplicaSets."""
