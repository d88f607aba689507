"""What the discriminator attack is made of: candidates in a subspace, and what tells the true one."""
