"""Kernels for CUDA devices: CUDA C from the loop IR, and routines written as text."""
