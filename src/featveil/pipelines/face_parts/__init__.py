"""What `featveil face` is made of: descriptors of photographs, templates for a store, and its threshold."""
