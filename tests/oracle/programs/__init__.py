"""Whole programs as users of PyTorch write them, which test_programs.py runs with both libraries."""
