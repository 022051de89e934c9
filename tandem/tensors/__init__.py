"""What makes and describes tensors, above the operators."""
