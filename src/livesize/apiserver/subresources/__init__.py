"""How each subresource turns the stored object and what was sent into the next object."""
