"""Pruning: parts of a parameter held at zero by a mask.

A pruned parameter `weight` becomes `weight_orig` (what an optimiser changes) and the buffer `weight_mask`; their product is
weight again before every forward. Pruning what is pruned combines masks: amounts count among what is left. remove()
makes it permanent.
"""

from __future__ import annotations

import tandem.ops as F
from tandem.autograd.modes import no_grad
from tandem.nn.module import Module
from tandem.nn.utils.convert import parameters_to_vector
from tandem.nn.utils.recomputed import Recomputed, hooks_of, take_hook

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer", "RandomStructured",
    "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip


class BasePruningMethod(Recomputed):
    """A way of pruning. Subclasses define compute_mask(t, default_mask): the mask for a tensor that has one already (of ones, at
    first), and PRUNING_TYPE: "unstructured" methods see the elements that are left, "structured" ones (with an attribute `dim`)
    the channels that are left, "global" ones the whole tensor."""

    PRUNING_TYPE = "unstructured"
    name: str | None = None

    @property
    def _tensor_name(self):
        return self.name

    def compute_mask(self, t, default_mask):
        raise NotImplementedError

    def compute(self, module):
        orig = getattr(module, self.name + "_orig")
        return getattr(module, self.name + "_mask").to(orig.dtype) * orig

    apply_mask = compute

    @classmethod
    def apply(cls, module: Module, name: str, *args, importance_scores=None, **kwargs):
        """Prunes a parameter of a module by cls(*args, **kwargs), on top of what was pruned before; gives the method."""
        method = cls(*args, **kwargs)
        method.name = name
        before = next((h for h in hooks_of(module, BasePruningMethod).values() if h.name == name), None)
        if before is None and name not in module._parameters:
            raise ValueError(f"{type(module).__name__} has no parameter {name!r}")
        value = getattr(module, name)
        scores = value if importance_scores is None else importance_scores
        if scores.shape != value.shape:
            raise ValueError(f"importance_scores are {scores.shape}; {name} is {value.shape}")
        with no_grad():
            old = F.ones_like(value) if before is None else getattr(module, name + "_mask").clone()
            if before is not None:
                method = _join(before, method)
            mask = method.compute_mask(scores.detach(), default_mask=old)
        if before is None:
            del module._parameters[name]
            module.register_parameter(name + "_orig", value)
        else:
            take_hook(module, BasePruningMethod, name)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.compute(module))
        module.register_forward_pre_hook(method)
        return method

    def prune(self, t, default_mask=None, importance_scores=None):
        """t with its pruned parts at zero; nothing is registered."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise ValueError(f"importance_scores are {scores.shape}; the tensor is {t.shape}")
        mask = F.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, default_mask=mask)

    def remove(self, module: Module):
        """Makes the pruned tensor a plain parameter, which keeps its identity for optimisers."""
        value = self.compute(module).detach()
        orig = module._parameters.pop(self.name + "_orig")
        module.__dict__.pop(self.name, None)
        del module._buffers[self.name + "_mask"]
        with no_grad():
            orig.copy_(value)
        module.register_parameter(self.name, orig)


def _join(before: BasePruningMethod, method: BasePruningMethod) -> PruningContainer:
    container = before if isinstance(before, PruningContainer) else PruningContainer(before)
    container.add_pruning_method(method)
    return container


class PruningContainer(BasePruningMethod):
    """Methods that were applied to one tensor, in order; the last makes the next mask."""

    def __init__(self, *methods):
        self._methods: list[BasePruningMethod] = []
        given = methods[0] if len(methods) == 1 and not isinstance(methods[0], BasePruningMethod) else methods
        for i, method in enumerate(given):
            if i == 0:
                self.name = method.name
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod):
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method).__name__} is not a pruning method")
        if method.name != self.name:
            raise ValueError(f"the container is for {self.name!r}, the method for {method.name!r}")
        self._methods.append(method)

    def __len__(self):
        return len(self._methods)

    def __iter__(self):
        return iter(self._methods)

    def __getitem__(self, index):
        return self._methods[index]

    def compute_mask(self, t, default_mask):
        method, mask = self._methods[-1], default_mask.to(t.dtype, copy=True)
        if method.PRUNING_TYPE == "global":
            return method.compute_mask(t, default_mask=default_mask)
        if method.PRUNING_TYPE == "unstructured":
            left = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            axis = method.dim % t.ndim
            others = tuple(a for a in range(t.ndim) if a != axis)
            left = (slice(None),) * axis + (default_mask.sum(others) != 0,)
        else:
            raise ValueError(f"PRUNING_TYPE is {method.PRUNING_TYPE!r}; it must be unstructured, structured or global")
        mask[left] = method.compute_mask(t[left], default_mask=default_mask[left]).to(mask.dtype)
        return mask


def _count(amount, size: int) -> int:
    """How many of size an amount is: a fraction, or a number."""
    count = amount if isinstance(amount, int) else round(float(amount) * size)
    if count > size:
        raise ValueError(f"amount is {amount}; there are only {size} to prune")
    return count


class _ByAmount(BasePruningMethod):
    def __init__(self, amount):
        if isinstance(amount, bool) or not isinstance(amount, (int, float)):
            raise TypeError(f"amount must be an int or a float, not {amount!r}")
        if amount < 0 or (isinstance(amount, float) and amount > 1):
            raise ValueError(f"amount is {amount}; it must be a fraction in [0, 1] or a number of at least 0")
        self.amount = amount

    def _without_largest(self, scores, mask):
        """The mask without the `amount` elements of largest score."""
        count, made = _count(self.amount, scores.size), mask.reshape(-1).clone()
        if count:
            made[F.topk(scores.reshape(-1), count).indices] = 0
        return made.reshape(mask.shape)


class Identity(BasePruningMethod):
    """Prunes nothing."""

    def compute_mask(self, t, default_mask):
        return default_mask


class RandomUnstructured(_ByAmount):
    """Prunes elements at random."""

    def compute_mask(self, t, default_mask):
        return self._without_largest(F.rand_like(t), default_mask)


class L1Unstructured(_ByAmount):
    """Prunes the elements of smallest absolute value."""

    def compute_mask(self, t, default_mask):
        return self._without_largest(-F.abs(t), default_mask)


class _Structured(_ByAmount):
    PRUNING_TYPE = "structured"

    def __init__(self, amount, dim: int = -1):
        super().__init__(amount)
        self.dim = dim

    def _scores(self, t, axis: int):
        raise NotImplementedError

    def compute_mask(self, t, default_mask):
        if t.ndim < 2:
            raise ValueError(f"channels are pruned of tensors with two axes or more; this one is {t.shape}")
        if not -t.ndim <= self.dim < t.ndim:
            raise IndexError(f"dim is {self.dim}; the tensor is {t.shape}")
        axis = self.dim % t.ndim
        channels = t.shape[axis]
        kept = channels - _count(self.amount, channels)
        if kept == channels:
            return default_mask
        mask = F.zeros_like(t)
        mask[(slice(None),) * axis + (F.topk(self._scores(t, axis), kept).indices,)] = 1
        return mask * default_mask.to(mask.dtype)


class RandomStructured(_Structured):
    """Prunes channels, the indices of axis dim, at random."""

    def _scores(self, t, axis):
        return F.rand(t.shape[axis], device=t.device)


class LnStructured(_Structured):
    """Prunes the channels, indices of axis dim, whose norm of order n is smallest."""

    def __init__(self, amount, n, dim: int = -1):
        super().__init__(amount, dim)
        self.n = n

    def _scores(self, t, axis):
        return F.norm(t, self.n, tuple(a for a in range(t.ndim) if a != axis))


class CustomFromMask(BasePruningMethod):
    """Prunes where a mask is 0."""

    PRUNING_TYPE = "global"

    def __init__(self, mask):
        self.mask = mask

    def compute_mask(self, t, default_mask):
        if self.mask.shape != default_mask.shape:
            raise ValueError(f"the mask is {self.mask.shape}; the tensor is {default_mask.shape}")
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Gives a parameter the form of a pruned one, with a mask of ones."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount) -> Module:
    """Prunes an amount, a fraction or a number, of a parameter's elements at random."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount, importance_scores=None) -> Module:
    """Prunes an amount, a fraction or a number, of a parameter's elements: the smallest ones, or those of smallest score.

    >>> layer = td.nn.utils.prune.l1_unstructured(td.nn.Linear(4, 3), "weight", amount=0.5)
    >>> int((layer.weight == 0).sum()), sorted(layer.state_dict())
    (6, ['bias', 'weight_mask', 'weight_orig'])
    """
    L1Unstructured.apply(module, name, amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount, dim: int) -> Module:
    """Prunes an amount of a parameter's channels along dim at random."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount, n, dim: int, importance_scores=None) -> Module:
    """Prunes an amount of a parameter's channels along dim: those whose norm of order n is smallest."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask) -> Module:
    """Prunes a parameter where a mask is 0."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters, pruning_method: type, importance_scores: dict | None = None, **kwargs):
    """Prunes several parameters, given as (module, name), as if they were one: the amount is of all their elements together."""
    parameters = list(parameters)
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f"global_unstructured takes an unstructured method; {pruning_method.__name__} is {method.PRUNING_TYPE}"
        )
    given = importance_scores or {}
    with no_grad():
        values = [getattr(module, name) for module, name in parameters]
        scores = [given.get(pair, value).detach() for pair, value in zip(parameters, values, strict=True)]
        masks = [
            getattr(module, name + "_mask", F.ones_like(value))
            for (module, name), value in zip(parameters, values, strict=True)
        ]
        mask = PruningContainer(method).compute_mask(parameters_to_vector(scores), parameters_to_vector(masks))
    start = 0
    for (module, name), value in zip(parameters, values, strict=True):
        custom_from_mask(module, name, mask[start : start + value.size].reshape(value.shape))
        start += value.size


def remove(module: Module, name: str) -> Module:
    """Makes pruning permanent: the tensor is a plain parameter again, zeros included."""
    method = take_hook(module, BasePruningMethod, name)
    if method is None:
        raise ValueError(f"{type(module).__name__}.{name} is not pruned")
    method.remove(module)
    return module


def is_pruned(module: Module) -> bool:
    """Whether a module or one inside it has a pruned parameter."""
    return any(hooks_of(m, BasePruningMethod) for m in module.modules())
