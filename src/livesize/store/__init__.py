"""The store: revisions, atomic commits over several keys, watch from a revision."""
