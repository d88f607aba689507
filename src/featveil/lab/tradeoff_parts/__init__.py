"""What the bench of both mechanisms is made of: epsilons of equal success."""
