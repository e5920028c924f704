"""The command line; speaks to the API server through the client only."""
