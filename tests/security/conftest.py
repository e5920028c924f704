"""The suite of attacks: each test does what an intruder would, and shows that it does not work."""
