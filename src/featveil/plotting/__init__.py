"""Figures, tables and pictures that more than one capability draws."""
