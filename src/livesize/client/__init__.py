"""The client: the one way components and people speak to an API server."""
