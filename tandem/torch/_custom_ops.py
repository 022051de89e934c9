"""PyTorch's older path to torch.library.custom_op."""

from tandem.torch.library import custom_op, register_fake

__all__ = ["custom_op", "register_fake"]

impl_abstract = register_fake
