"""The compiled code of the numba backend: small solves, what is kept of their results, and passes over many tiles."""
