"""THE MACHINE: drivers that run containers and change their groups, behind one interface."""
