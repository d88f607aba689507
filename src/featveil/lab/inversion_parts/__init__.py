"""What the bench of inversion is made of: its photographs, tables and figures."""
