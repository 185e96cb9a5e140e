"""Measure layers: time, memory, FLOPs, sequential operations, and path lengths (Vaswani et al. 2017, table 1)."""
