"""Decides who may change which object, after validation and before the commit. Pure."""
