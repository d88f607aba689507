"""What `privatize` is made of: where releases go, and what is said of them."""
