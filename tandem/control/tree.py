"""Nested containers of tensors: taken apart, put together again, compared."""

from __future__ import annotations


class Structure:
    """The containers of a nested value without its leaves; each leaf has a path, such as "[1]['h']"."""

    __slots__ = ("kind", "keys", "parts")

    def __init__(self, kind, keys=(), parts=()):
        self.kind = kind  # None for a leaf, type(None) for None, or the type of the container
        self.keys = tuple(keys)
        self.parts = tuple(parts)

    def key(self):
        return self.kind, self.keys, tuple(p.key() for p in self.parts)

    def __eq__(self, other):
        return isinstance(other, Structure) and self.key() == other.key()

    def __hash__(self):
        return hash(self.key())

    def paths(self, prefix: str = "") -> list[str]:
        if self.kind is None:
            return [prefix]
        found = []
        for key, part in zip(self.keys, self.parts, strict=True):
            found += part.paths(prefix + (f".{key}" if hasattr(self.kind, "_fields") else f"[{key!r}]"))
        return found

    def __repr__(self):
        if self.kind is None:
            return "*"
        if self.kind is type(None):
            return "None"
        inside = ", ".join(
            f"{k!r}: {p!r}" if self.kind is dict else repr(p) for k, p in zip(self.keys, self.parts, strict=True)
        )
        if self.kind is list:
            return f"[{inside}]"
        if self.kind is dict:
            return f"{{{inside}}}"
        name = "" if self.kind is tuple else self.kind.__name__
        return f"{name}({inside}{',' if len(self.parts) == 1 and not name else ''})"


LEAF = Structure(None)


def flatten(x) -> tuple[list, Structure]:
    leaves: list = []
    return leaves, _take_apart(x, leaves)


def _take_apart(x, leaves: list) -> Structure:
    if x is None:
        return Structure(type(None))
    if isinstance(x, dict):
        keys = list(x)
        return Structure(dict, keys, [_take_apart(x[k], leaves) for k in keys])
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return Structure(type(x), x._fields, [_take_apart(y, leaves) for y in x])
    if isinstance(x, (list, tuple)):
        return Structure(list if isinstance(x, list) else tuple, range(len(x)), [_take_apart(y, leaves) for y in x])
    leaves.append(x)
    return LEAF


def unflatten(structure: Structure, leaves):
    return _put_together(structure, iter(leaves))


def _put_together(structure: Structure, leaves):
    kind = structure.kind
    if kind is None:
        return next(leaves)
    if kind is type(None):
        return None
    parts = [_put_together(p, leaves) for p in structure.parts]
    if kind is dict:
        return dict(zip(structure.keys, parts, strict=True))
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)
