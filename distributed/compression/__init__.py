"""What ranks send of their gradients instead of all of them."""
