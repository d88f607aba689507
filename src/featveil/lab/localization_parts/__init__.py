"""What the bench of localization is made of: the maps that lack a query."""
