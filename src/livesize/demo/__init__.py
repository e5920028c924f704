"""`livesize demo`: a container and a virtual machine grow and shrink while they run, with proof."""
