"""Drivers that run containers and change their groups, behind one interface."""
