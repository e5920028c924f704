"""`livesize resize`: what to ask for (plan), where it stands (progress), asking (command)."""
