"""What the bench of the gate is made of: its variants, what is measured, what is reported, and a picture."""
