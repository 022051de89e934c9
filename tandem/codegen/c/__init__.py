"""Portable C99: kernels as text that any C compiler takes."""
