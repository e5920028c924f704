"""Says of nodes that are not heard any more that nothing is known of them."""
