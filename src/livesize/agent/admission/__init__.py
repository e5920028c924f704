"""Decides what this node takes in."""
