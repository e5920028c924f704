"""THE NODE: admits, runs, resizes and reports the pods of one machine."""
