"""The commands that are not spoken to the API: they run on this machine."""
