"""What this node has promised, in memory and on disk."""
