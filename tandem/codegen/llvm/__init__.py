"""Kernels for CPUs: LLVM IR from the loop IR, with explicit vectors."""
