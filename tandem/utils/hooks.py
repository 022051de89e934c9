"""What registering a hook gives, by PyTorch's path."""

from tandem.nn.hooks import HookHandle as RemovableHandle

__all__ = ["RemovableHandle"]
