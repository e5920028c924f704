"""Tells the pods of headless services each other's addresses."""
