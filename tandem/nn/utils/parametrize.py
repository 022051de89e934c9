"""Parameters that are computed from others: `weight` becomes a property, what it is computed from a parameter.

register_parametrization(layer, "weight", Symmetric()) makes layer.weight be Symmetric()(original) from then on. The original is
layer.parametrizations.weight.original; where a parametrization's right_inverse gives several tensors, original0, original1, ...
"""

from __future__ import annotations

import threading
from contextlib import contextmanager, suppress

from tandem import _runtime
from tandem.autograd.modes import no_grad
from tandem.nn.containers import ModuleDict, ModuleList
from tandem.nn.module import Module
from tandem.nn.parameter import Parameter


class _Kept(threading.local):
    """What was computed inside of cached(), by this thread."""

    tensors: dict | None = None  # (id of a module, name) -> the module, the tensor


_kept = _Kept()


@contextmanager
def cached():
    """Inside, a parametrized tensor is computed once and kept, for this thread."""
    before = _kept.tensors
    if before is None:
        _kept.tensors = {}
    try:
        yield
    finally:
        _kept.tensors = before


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and the tensors it is computed from."""

    def __init__(self, modules, original):
        super().__init__(modules)
        made = original
        with no_grad(), suppress(NotImplementedError):  # one that cannot be undone starts from the tensor as it is
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    made = module.right_inverse(made)
        self.is_tensor = isinstance(made, _runtime.Tensor)
        self.ntensors = 1 if self.is_tensor else len(made)
        kept = [made] if self.is_tensor else list(made)
        for name, t in zip(self._names(), kept, strict=True):
            if isinstance(original, Parameter):
                same = t is original
                self.register_parameter(name, original if same else Parameter(t.detach(), original.requires_grad))
            else:
                self.register_buffer(name, t)

    def shared(self) -> ParametrizationList:
        """Another list of the same parametrizations and the same tensors."""
        made = ParametrizationList.__new__(ParametrizationList)
        ModuleList.__init__(made, list(self))
        made.is_tensor, made.ntensors = self.is_tensor, self.ntensors
        for name in self._names():
            if name in self._parameters:
                made.register_parameter(name, self._parameters[name])
            else:
                made.register_buffer(name, self._buffers[name])
        return made

    def _names(self) -> list[str]:
        return ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]

    def forward(self):
        value = tuple(getattr(self, name) for name in self._names())
        first = True
        for module in self:
            value = module(*value) if first else module(value)
            first = False
        return value

    @no_grad()
    def right_inverse(self, value):
        """Sets the originals so that the tensor becomes `value`."""
        for module in reversed(list(self)):
            if not hasattr(module, "right_inverse"):
                raise RuntimeError(
                    f"{type(module).__name__} has no right_inverse, so that the tensor cannot be assigned"
                )
            value = module.right_inverse(value)
        for name, t in zip(self._names(), [value] if self.is_tensor else value, strict=True):
            getattr(self, name).copy_(t)

    __repr__ = Module.__repr__


def _property(name: str) -> property:
    def get(module):
        if _kept.tensors is None:
            return module.parametrizations[name]()
        key = (id(module), name)
        if key not in _kept.tensors:  # the module stays with it: another one may not get its id
            _kept.tensors[key] = module, module.parametrizations[name]()
        return _kept.tensors[key][1]

    def put(module, value):
        module.parametrizations[name].right_inverse(value)

    return property(get, put)


def _rebuild(base: type, names: tuple[str, ...]):
    return object.__new__(_parametrized_class(base, names))


def _parametrized_class(base: type, names: tuple[str, ...]) -> type:
    def __reduce_ex__(self, protocol):
        return _rebuild, (base, tuple(self.__dict__["_modules"]["parametrizations"])), self.__getstate__()

    members = {"_parametrized_base": base, "__reduce_ex__": __reduce_ex__, "__module__": base.__module__}
    return type(f"Parametrized{base.__name__}", (base,), members | {name: _property(name) for name in names})


def _set_class(module: Module):
    base = getattr(type(module), "_parametrized_base", type(module))
    names = tuple(module._modules["parametrizations"]) if "parametrizations" in module._modules else ()
    module.__class__ = _parametrized_class(base, names) if names else base


def register_parametrization(
    module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False
) -> Module:
    """Has module's tensor computed by parametrization from now on; several are applied one after the other."""
    if is_parametrized(module, tensor_name):
        chain = module.parametrizations[tensor_name]
        if hasattr(parametrization, "right_inverse") and not unsafe:
            value = getattr(module, tensor_name)
            chain.append(parametrization)
            chain.right_inverse(value)
        else:
            chain.append(parametrization)
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(f"{type(module).__name__} has no parameter or buffer {tensor_name!r}")
    original = getattr(module, tensor_name)
    chain = ParametrizationList([parametrization], original)
    if not unsafe:
        with no_grad():
            made = chain()
        if made.shape != original.shape or made.dtype is not original.dtype:
            raise ValueError(
                f"the parametrization gives {made.shape} {made.dtype} for {tensor_name} of {original.shape} {original.dtype}; "
                "pass unsafe=True if that is meant"
            )
    delattr(module, tensor_name)
    if "parametrizations" not in module._modules:
        module.add_module("parametrizations", ModuleDict())
    module.parametrizations[tensor_name] = chain
    _set_class(module)
    return module


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether module has parametrizations (of this tensor)."""
    chains = module._modules.get("parametrizations")
    if chains is None or not isinstance(chains, ModuleDict):
        return False
    return bool(len(chains)) if tensor_name is None else tensor_name in chains


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Makes the tensor a plain one again: with its present value, or with the original's."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"{type(module).__name__}.{tensor_name} is not parametrized")
    chain = module.parametrizations[tensor_name]
    names = chain._names()
    first = getattr(chain, names[0])
    with no_grad():
        if leave_parametrized:
            value = getattr(module, tensor_name).clone()
        elif chain.is_tensor:
            value = first
        else:
            raise ValueError(
                f"{tensor_name} is computed from {len(names)} tensors: only leave_parametrized=True is possible"
            )
    del module.parametrizations[tensor_name]
    if not len(module.parametrizations):
        delattr(module, "parametrizations")
    _set_class(module)
    if isinstance(first, Parameter):
        module.register_parameter(
            tensor_name, value if isinstance(value, Parameter) else Parameter(value, first.requires_grad)
        )
    else:
        module.register_buffer(tensor_name, value)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before its first parametrization."""
    return getattr(type(module), "_parametrized_base", type(module)) if is_parametrized(module) else type(module)


def transfer_parametrizations_and_params(
    from_module: Module, to_module: Module, tensor_name: str | None = None
) -> Module:
    """Gives to_module the parametrizations of from_module (of one tensor, if named) and shares what they are computed from."""
    if not is_parametrized(from_module):
        return to_module
    for name in list(from_module.parametrizations) if tensor_name is None else [tensor_name]:
        if name in to_module._parameters or name in to_module._buffers:
            delattr(to_module, name)
        if "parametrizations" not in to_module._modules:
            to_module.add_module("parametrizations", ModuleDict())
        to_module.parametrizations[name] = from_module.parametrizations[name].shared()
        _set_class(to_module)
    return to_module
