"""What the API server does with objects of one kind beyond what it does with all of them."""
