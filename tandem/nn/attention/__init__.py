"""Attention: layers, PyTorch's choice of how it is computed, and score functions (flex_attention)."""

from tandem.nn.attention.multi_head import MultiheadAttention, SDPBackend, sdpa_kernel

__all__ = ["MultiheadAttention", "SDPBackend", "flex_attention", "sdpa_kernel"]


def __getattr__(name):
    if name == "flex_attention":  # imported when first used
        import importlib

        return importlib.import_module("tandem.nn.attention.flex_attention")
    raise AttributeError(f"module 'tandem.nn.attention' has no attribute {name!r}")
