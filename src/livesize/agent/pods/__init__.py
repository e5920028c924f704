"""Drives one pod towards what its object asks for."""
