"""What `featveil attack` is made of: records of attacks on files, and guesses where the truth is unknown."""
