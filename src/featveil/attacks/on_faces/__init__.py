"""Face templates -> what they say of a person: her attributes, and her descriptor from many logins."""
