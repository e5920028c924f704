"""Places pods on nodes."""
