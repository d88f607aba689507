"""Files <-> Features and PrivateFeatures: the `.veil` wire format and hloc's HDF5, one module each."""
