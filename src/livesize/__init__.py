"""Livesize: changes the CPU and memory of running containers and virtual machines, in place."""
