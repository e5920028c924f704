"""`livesize demo`: a container and two virtual machines grow and shrink as they run, with proof."""
