"""What the bench of the attacks' assumptions is made of: the members of subspaces."""
