"""`livesize doctor`: what this machine has (checks), and saying it (command)."""
