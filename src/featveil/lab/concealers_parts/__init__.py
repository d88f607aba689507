"""What the bench of concealers is made of: its tables and figures."""
