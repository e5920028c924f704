"""Containers of an ordinary user: namespaces of their own, and a subtree of control groups."""
