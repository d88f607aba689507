"""Files <-> features, matches, pairs, poses: the `.veil` wire format, hloc's files and COLMAP's, one module each."""
