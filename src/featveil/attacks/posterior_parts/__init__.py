"""What the posterior attacks are made of: likelihoods of words, and beliefs that neighbours share."""
