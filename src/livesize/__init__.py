"""Livesize: changes the CPU and memory of running containers and virtual machines, in place."""

VERSION = "0.1.0"
