"""Gradients over graphs."""
