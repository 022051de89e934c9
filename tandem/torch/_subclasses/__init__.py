"""Kinds of tensors that PyTorch traces with: there are none here."""
