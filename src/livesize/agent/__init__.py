"""The node agent: admits, runs, resizes and reports the pods of one machine."""
