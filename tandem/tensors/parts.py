"""Tensors in parts: sparse and nested ones, whose values are ordinary tensors (Note [Tensors in parts] in src/tensor/tensor.h).

A class of them says with `forms` which operators it has: a dict from the name of an operator function to what computes it, which is
called with the function's arguments in order. The dispatcher brings every call here that has such a tensor among its arguments.
Its values are the part `_values_part`, through which gradients go; `with_values` makes the same with others.
"""

from __future__ import annotations

import importlib

from tandem import _runtime
from tandem.errors import UnsupportedError
from tandem.graph.ir import Value

Tensor = _runtime.Tensor


class TensorInParts(Tensor):
    """Base of classes whose objects stand for a tensor and hold its parts as attributes."""

    _in_parts = True
    kind = ""  # what messages call it
    forms: dict[str, object] = {}

    @classmethod
    def make(cls, dtype, shape, device: int):
        return _runtime.make_in_parts(cls, dtype, tuple(shape), device)

    @classmethod
    def dense_fix(cls) -> str:
        return "x.to_dense()"

    # Gradients are those of the values.

    @property
    def requires_grad(self) -> bool:
        return self._values_part.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool):
        self._values_part.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True):
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        return self._values_part.is_leaf

    @property
    def grad_fn(self):
        return self._values_part.grad_fn

    @property
    def grad(self):
        """The gradient, in the same parts."""
        g = self._values_part.grad
        return None if g is None else self.with_values(g)

    @grad.setter
    def grad(self, value):
        self._values_part.grad = None if value is None else value._values_part

    def retain_grad(self):
        self._values_part.retain_grad()

    def detach(self):
        return self.with_values(self._values_part.detach())

    def detach_(self):
        self._values_part.detach_()
        return self

    @property
    def data(self):
        return self.with_values(self._values_part.data)

    def with_values(self, values):
        """The same with other values."""
        raise NotImplementedError

    # Elsewhere.

    def cpu(self, *args, **kwargs):
        return self.to("cpu")

    def cuda(self, device=None, **kwargs):
        return self.to("cuda" if device is None else device)

    def __len__(self) -> int:
        return self.shape[0]

    # What reads or writes memory has none to read or write.

    def _no_memory(self, name: str):
        raise UnsupportedError(
            name, f"this is a {self.kind} tensor, which has no memory of its own", fix=self.dense_fix()
        )

    def numpy(self, *args, **kwargs):
        return self._no_memory("numpy")

    def __array__(self, *args, **kwargs):
        return self._no_memory("__array__")

    def __dlpack__(self, *args, **kwargs):
        return self._no_memory("__dlpack__")

    def tolist(self):
        return self._no_memory("tolist")

    def item(self):
        return self._no_memory("item")

    def data_ptr(self):
        return self._no_memory("data_ptr")

    def storage(self):
        return self._no_memory("storage")

    def __float__(self):
        return self._no_memory("float")

    def __int__(self):
        return self._no_memory("int")

    def __bool__(self):
        return self._no_memory("bool")

    def __getitem__(self, index):
        return self._no_memory("getitem")

    def __setitem__(self, index, value):
        self._no_memory("setitem")

    def __iter__(self):
        return self._no_memory("iter")

    def backward(self, *args, **kwargs):
        raise UnsupportedError(
            "backward", f"the loss is a {self.kind} tensor; it must be dense", fix="take a sum of it first"
        )

    def is_contiguous(self, *args, **kwargs) -> bool:
        return False

    def contiguous(self, *args, **kwargs):
        return self

    def __deepcopy__(self, memo):
        return self.clone()

    def __copy__(self):
        return self.with_values(self._values_part)

    def __reduce_ex__(self, protocol):
        make, parts = self._parts()
        return make, parts

    def _parts(self) -> tuple:
        """The function that makes it of its parts, and these."""
        raise NotImplementedError

    def saved(self) -> tuple[str, list]:
        """What a file has of it: a name, and parts for the function that `restores` gives for it."""
        raise NotImplementedError


restored: dict[str, object] = {}  # {name in files: what makes such a tensor of its parts, and checks that they fit}


def restores(name: str):
    def decorate(fn):
        restored[name] = fn
        return fn

    return decorate


def form_table():
    """A table of forms, and the decorator that fills it: @form(name of an operator function, ...)."""
    forms: dict[str, object] = {}

    def form(*names: str):
        def decorate(fn):
            forms.update(dict.fromkeys(names, fn))
            return fn

        return decorate

    return forms, form


def call(function, arguments: tuple):
    """An operator called with tensors in parts."""
    found = _first(arguments)
    if found.is_meta:
        return importlib.import_module("tandem.tracing.meta").result_of(function, arguments)
    form = type(found).forms.get(function.__name__)
    if form is not None and not any(isinstance(a, Value) for a in arguments):
        made = form(*arguments)
        if made is not NotImplemented:
            return made
    name = next(p.name for p, a in zip(function.parameters, arguments, strict=True) if _first((a,)) is not None)
    others = "" if form is None else " with these arguments"
    raise UnsupportedError(
        function.__name__,
        f"{name} is a {found.kind} tensor of shape {tuple(found.shape)}, for which there is no {function.__name__}{others}",
        fix=f"convert it: {found.dense_fix().replace('x.', name + '.', 1)}",
    )


def _first(arguments) -> TensorInParts | None:
    for a in arguments:
        if isinstance(a, TensorInParts):
            return a
        if isinstance(a, (tuple, list)):
            found = _first(a)
            if found is not None:
                return found
    return None
