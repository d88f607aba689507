"""The audit: every attack against every defense on the same photographs, and what still matches, as one page."""
