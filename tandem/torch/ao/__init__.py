"""torch.ao: the places in models where PyTorch's quantisation begins and ends; quantisation itself is td.quantize here."""

from tandem.torch.ao import quantization

__all__ = ["quantization"]
