"""Drive the cluster towards what its objects say, through the API alone."""
