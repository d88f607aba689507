"""What the overlap attack is made of: which keypoints overlap, and what that says of their descriptors."""
