"""Lets events go after their time: plan, then apply."""
