"""What `match` is made of: the pairs of many images."""
