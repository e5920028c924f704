"""Gives claims their volumes, and volumes back when their claims are gone."""
