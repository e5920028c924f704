"""Changes the size of a running virtual machine: plan, then apply."""
