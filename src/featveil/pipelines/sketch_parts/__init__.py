"""What is done with sketches once they are built, and what building them shares with that."""
