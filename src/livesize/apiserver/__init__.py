"""The API server: the only reader and writer of the store; Kubernetes on the wire."""
