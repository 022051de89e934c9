"""Modules and parameters in lists and dicts."""

from __future__ import annotations

import operator
from itertools import islice

from tandem.nn.module import Module
from tandem.nn.parameter import Parameter, Tensor


def _index(length: int, i) -> int:
    i = operator.index(i)
    if not -length <= i < length:
        raise IndexError(f"index {i} is outside a container of {length}")
    return i % length


class _ModuleSequence(Module):
    """What Sequential and ModuleList share: modules named "0", "1", ..."""

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules.values())

    def _key(self, i) -> str:
        return next(islice(self._modules, _index(len(self), i), None))

    def __setitem__(self, i, module: Module):
        setattr(self, self._key(i), module)

    def __delitem__(self, i):
        for key in list(self._modules)[i] if isinstance(i, slice) else [self._key(i)]:
            delattr(self, key)
        self._renumber(self._modules.values())

    def _renumber(self, modules):
        self.__dict__["_modules"] = {str(i): m for i, m in enumerate(modules)}

    def append(self, module: Module):
        self.add_module(str(len(self)), module)
        return self

    def insert(self, i: int, module: Module):
        if not isinstance(module, Module):
            raise TypeError(f"a {type(module).__name__} is not a Module")
        modules = list(self)
        modules.insert(i, module)
        self._renumber(modules)
        return self

    def extend(self, modules):
        for module in list(modules):
            self.append(module)
        return self

    def pop(self, i=-1) -> Module:
        module = self[i]
        del self[i]
        return module

    def __iadd__(self, other):
        return self.extend(other)


class Sequential(_ModuleSequence):
    """Modules one after the other: the output of each is the input of the next.

    >>> net = td.nn.Sequential(td.nn.Linear(4, 8), td.nn.ReLU(), td.nn.Linear(8, 2))
    >>> net(td.ones(3, 4)).shape
    (3, 2)
    """

    def __init__(self, *modules):
        super().__init__()
        if len(modules) == 1 and isinstance(modules[0], dict):
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            for i, module in enumerate(modules):
                self.add_module(str(i), module)

    def forward(self, input):
        for module in self._modules.values():
            input = module(input)
        return input

    def __getitem__(self, i):
        if isinstance(i, slice):
            return type(self)(dict(list(self._modules.items())[i]))
        return self._modules[self._key(i)]

    def __add__(self, other):
        if not isinstance(other, Sequential):
            return NotImplemented
        return Sequential(*self, *other)

    def __mul__(self, count: int):
        """Copies of all modules, count times over."""
        import copy

        return Sequential(*(copy.deepcopy(m) if k else m for k in range(count) for m in self))

    __rmul__ = __mul__


class ModuleList(_ModuleSequence):
    """A list of modules that are part of the module it is assigned to."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __getitem__(self, i):
        if isinstance(i, slice):
            return type(self)(list(self)[i])
        return self._modules[self._key(i)]

    def __add__(self, other):
        return ModuleList([*self, *other])

    def __repr__(self):
        """Runs of equal modules are written once: (0-2): 3 x Linear(...)."""
        texts = [repr(m) for m in self]
        lines, i = [], 0
        while i < len(texts):
            j = i
            while j + 1 < len(texts) and texts[j + 1] == texts[i]:
                j += 1
            label = f"({i}): " if i == j else f"({i}-{j}): {j - i + 1} x "
            lines.append(label + texts[i].replace("\n", "\n  "))
            i = j + 1
        return "ModuleList()" if not lines else "ModuleList(\n  " + "\n  ".join(lines) + "\n)"


class ModuleDict(Module):
    """A dict of modules that are part of the module it is assigned to."""

    def __init__(self, modules=None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module):
        self.add_module(key, module)

    def __delitem__(self, key: str):
        del self._modules[key]

    def __len__(self):
        return len(self._modules)

    def __iter__(self):
        return iter(self._modules)

    def __contains__(self, key):
        return key in self._modules

    def clear(self):
        self._modules.clear()

    def pop(self, key: str) -> Module:
        return self._modules.pop(key)

    def keys(self):
        return self._modules.keys()

    def items(self):
        return self._modules.items()

    def values(self):
        return self._modules.values()

    def update(self, modules):
        for key, module in modules.items() if hasattr(modules, "items") else modules:
            self[key] = module


def _as_parameter(value):
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        return Parameter(value, requires_grad=value.dtype.is_inexact)
    return value


class ParameterList(Module):
    """A list of parameters that are part of the module it is assigned to. Plain tensors become parameters."""

    def __init__(self, values=None):
        super().__init__()
        if values is not None:
            self.extend(values)

    def __len__(self):
        return len(self._parameters)

    def __iter__(self):
        return iter(self._parameters.values())

    def __getitem__(self, i):
        if isinstance(i, slice):
            return type(self)(list(self)[i])
        return self._parameters[str(_index(len(self), i))]

    def __setitem__(self, i, value):
        self.register_parameter(str(_index(len(self), i)), _as_parameter(value))

    def append(self, value):
        self.register_parameter(str(len(self)), _as_parameter(value))
        return self

    def extend(self, values):
        for value in list(values):
            self.append(value)
        return self

    def __iadd__(self, other):
        return self.extend(other)

    def extra_repr(self) -> str:
        return _parameter_lines(self)


class ParameterDict(Module):
    """A dict of parameters that are part of the module it is assigned to. Plain tensors become parameters."""

    def __init__(self, parameters=None):
        super().__init__()
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str):
        return self._parameters[key]

    def __setitem__(self, key: str, value):
        self.register_parameter(key, _as_parameter(value))

    def __delitem__(self, key: str):
        del self._parameters[key]

    def __len__(self):
        return len(self._parameters)

    def __iter__(self):
        return iter(self._parameters)

    def __contains__(self, key):
        return key in self._parameters

    def clear(self):
        self._parameters.clear()

    def pop(self, key: str):
        return self._parameters.pop(key)

    def get(self, key: str, default=None):
        return self._parameters.get(key, default)

    def setdefault(self, key: str, default=None):
        if key not in self._parameters:
            self[key] = default
        return self[key]

    def keys(self):
        return self._parameters.keys()

    def items(self):
        return self._parameters.items()

    def values(self):
        return self._parameters.values()

    def update(self, parameters):
        for key, value in parameters.items() if hasattr(parameters, "items") else parameters:
            self[key] = value

    def extra_repr(self) -> str:
        return _parameter_lines(self)


def _parameter_lines(module: Module) -> str:
    return "\n".join(
        f"({name}): Parameter of shape {tuple(p.shape)}, {p.dtype}"
        for name, p in module._parameters.items()
        if p is not None
    )
