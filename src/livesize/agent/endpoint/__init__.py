"""The way back to a node: logs, exec, attach and ports, for API servers only."""
