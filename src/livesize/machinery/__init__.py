"""What all components are built on: clock, queues, steps, supervised children. Knows no kind."""
