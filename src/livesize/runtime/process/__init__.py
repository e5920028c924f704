"""The embedded runtime: containers as plain processes in namespaces and control groups."""
