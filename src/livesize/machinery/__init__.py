"""THE ENGINE: clock, queues, steps, supervised children. Knows no kind of object."""
