"""What benches of faces share."""
