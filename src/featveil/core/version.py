"""The version of featveil, which is written into every result."""

VERSION = "0.1.0"
