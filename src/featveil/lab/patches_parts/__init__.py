"""What the bench of patches is made of: the tasks of HPatches."""
