"""What every controller and the scheduler are built on: caches, reconciling, metrics."""
