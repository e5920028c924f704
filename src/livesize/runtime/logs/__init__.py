"""Container logs on disk: read, followed, and kept from growing for ever."""
