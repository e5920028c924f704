"""Keeps the pods of stateful sets: numbered, in order, each with its name and its claims."""
