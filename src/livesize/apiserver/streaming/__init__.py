"""The way back to a node: logs, exec, attach and ports, authorized here and carried through."""
