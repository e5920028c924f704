"""Keeps as many pods of a ReplicaSet as it says."""
