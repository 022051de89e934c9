"""Tensors in parts: sparse and nested ones, whose values are ordinary tensors (Note [Tensors in parts] in src/tensor/tensor.h).

A class of them says with `forms` which operators it has: a dict from the name of an operator function to what computes it, which is
called with the function's arguments in order. The dispatcher brings every call here that has such a tensor among its arguments.
"""

from __future__ import annotations

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
        return self.with_values(self.values() if self.is_nested else self._values())

    def __reduce_ex__(self, protocol):
        make, parts = self._parts()
        return make, parts

    def _parts(self) -> tuple:
        """The function that makes it of its parts, and these."""
        raise NotImplementedError


def call(function, arguments: tuple):
    """An operator called with tensors in parts."""
    found = _first(arguments)
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
