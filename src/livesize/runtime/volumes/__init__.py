"""Volumes of pods on this machine: folders, memory, files that appear at once."""
