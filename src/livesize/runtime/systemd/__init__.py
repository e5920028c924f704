"""Limits of groups that belong to systemd: asked of it, so that it never sets them back."""
