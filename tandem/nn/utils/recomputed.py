"""Tensors of a module that are recomputed before every forward, by a hook that knows their name: how weight_norm, spectral_norm
and prune do it. nn.utils.parametrize has the later way, by which they are computed when read."""

from __future__ import annotations

from tandem.nn.module import Module


class Recomputed:
    """A forward-pre-hook that sets module.<name> to compute(module)."""

    name: str

    def compute(self, module: Module):
        raise NotImplementedError

    def __call__(self, module: Module, args):
        setattr(module, self.name, self.compute(module))


def hooks_of(module: Module, kind: type = Recomputed) -> dict[int, Recomputed]:
    """The module's own hooks of a kind, by number."""
    own = module._hooks.forward_pre if module._hooks is not None else {}
    return {number: hook for number, (hook, _) in own.items() if isinstance(hook, kind)}


def take_hook(module: Module, kind: type, name: str) -> Recomputed | None:
    """Removes the hook of a kind for a tensor and gives it, or None."""
    for number, hook in hooks_of(module, kind).items():
        if hook.name == name:
            del module._hooks.forward_pre[number]
            return hook
    return None
