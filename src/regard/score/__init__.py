"""Strings or alignments in, numbers out."""
