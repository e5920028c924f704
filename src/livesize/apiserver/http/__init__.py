"""Kubernetes on the wire: paths, bodies, tables, discovery, watches."""
