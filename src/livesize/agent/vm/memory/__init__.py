"""How a virtual machine's memory changes: one planner for each technology. Pure."""
