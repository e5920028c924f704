"""Resizes the pods of StatefulSets and Deployments in place, while their workload is held."""
