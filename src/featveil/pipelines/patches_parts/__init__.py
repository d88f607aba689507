"""What `featveil patches` is made of: points tracked through views of photographs, and sets of their patches."""
