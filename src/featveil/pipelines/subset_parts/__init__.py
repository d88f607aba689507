"""What `featveil subset` is made of: the exact numbers of the mechanism, and a statistical check of its sampler."""
