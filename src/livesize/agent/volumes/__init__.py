"""What a pod's containers find in their files and variables besides their image."""
