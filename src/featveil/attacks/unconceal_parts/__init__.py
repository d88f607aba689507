"""What the unconceal attack is made of: a learned inverse of a network, and its refinement."""
