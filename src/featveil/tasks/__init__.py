"""Dataset + scheme -> records; and what a mechanism amounts to before or without any data (planning, sampler_audit)."""
