"""Server-side apply: who owns which field, and what it means to apply a part of an object. Pure."""
