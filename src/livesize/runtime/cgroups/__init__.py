"""Control groups: one driver for each kernel interface, behind one protocol."""
