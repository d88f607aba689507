"""What `map` and `localize` are made of: matching and mapping of many images, and placing a query."""
