"""Dataset + scheme -> records; what a mechanism amounts to without any data (planning, sampler_audit); and the chains
of several folders that `featveil map` and `localize` run (map_building, localizing)."""
