"""Containers through containerd: a private one of the agent's own, or one that is there."""
