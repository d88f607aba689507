"""What the lattice attack is made of: short integer vectors, and how exact numbers must be."""
