"""How each door of a kind turns the stored object and what was sent into the next object."""
