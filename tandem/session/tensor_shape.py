"""The shape of a tensor of a graph as programs ask for it: sizes that may be unknown."""

from __future__ import annotations

from tandem.errors import ShapeError


class Dimension(int):
    """A size."""

    __slots__ = ()

    @property
    def value(self) -> int:
        return int(self)


class UnknownDimension:
    """A size that is not known; equal to None, as which it is shown."""

    __slots__ = ()
    value = None

    def __eq__(self, other):
        return other is None or isinstance(other, UnknownDimension)

    def __hash__(self):
        return hash(None)

    def __bool__(self):
        return False

    def __repr__(self):
        return "None"


class TensorShape(tuple):
    """Sizes, in which None stands for one that is not known.

    >>> x = td.placeholder(td.float32, (None, 3))
    >>> x.get_shape(), x.get_shape().as_list(), x.get_shape()[1].value
    ((None, 3), [None, 3], 3)
    """

    __slots__ = ()

    def __new__(cls, dims):
        if dims is None:
            raise ShapeError(
                "TensorShape",
                "the sizes are None: how many axes there are must be known",
                fix="give each axis, None where its size is open: [None, 10]",
            )
        return super().__new__(cls, (_dimension(getattr(d, "value", d)) for d in dims))

    @property
    def ndims(self) -> int:
        return len(self)

    def as_list(self) -> list[int | None]:
        return [d.value for d in self]

    def is_fully_defined(self) -> bool:
        return None not in self

    def num_elements(self) -> int | None:
        """How many elements such a tensor has, None if that is not known."""
        if not self.is_fully_defined():
            return None
        count = 1
        for d in self:
            count *= int(d)
        return count

    def __getitem__(self, key):
        found = super().__getitem__(key)
        return TensorShape(found) if isinstance(key, slice) else found


def _dimension(d) -> Dimension | UnknownDimension:
    return UnknownDimension() if d is None else Dimension(d)
