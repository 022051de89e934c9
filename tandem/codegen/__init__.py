"""From graphs of primitives to kernels."""
