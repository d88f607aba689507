"""What `featveil train` is made of: pieces of photographs, samples of releases, and the two trainings."""
