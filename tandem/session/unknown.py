"""Sizes that are not known while a graph is built.

Operators are asked for the types of their results when a graph is built, before any tensor is there. Their rules compare sizes; an
unknown size is taken to fit: equal to what it must be equal to, large, and divisible. Nothing computed relies on it, since each
run asks the rules again with the sizes it has (program.py).
"""

from __future__ import annotations

from tandem.errors import UnsupportedError
from tandem.graph.symbolic import Sym, Symbols

HINT = 720720  # divisible by every number to 16


class UnknownSizes(Symbols):
    """The symbols of a deferred graph: one for each unknown size of a placeholder."""

    def new_unknown(self, placeholder: str, axis: int) -> Sym:
        return self.new(HINT, ("unknown", placeholder, axis), not_one=True)

    def answer(self, relation: str, difference: Sym) -> bool:
        if relation in ("==", "!="):
            return self._may_be_zero(difference) == (relation == "==")
        return super().answer(relation, difference)

    def _may_be_zero(self, d: Sym) -> bool:
        if d.hint == 0:
            if len(d.terms) == 2 and abs(d.terms.get((), 0)) == HINT:
                _, owner, axis = self.origins[next(m for m in d.terms if m)[0][1]]
                raise UnsupportedError(
                    None,
                    f"the size of axis {axis} of {getattr(owner, 'name', owner)!r} is unknown and cannot become a Python number",
                    fix="inside `with graph:` pass the size on as it is, or give the placeholder a known size",
                )
            return True
        constant = d.terms.get((), 0)
        plain = [c for m, c in d.terms.items() if len(m) == 1 and m[0][0] == "sym" and abs(c) == 1]
        if (
            len(d.terms) == 2 and constant and plain
        ):  # size == number: so it may be, unless the number is none of a size
            return -constant * plain[0] > 1
        return len(plain) == len(d.terms) and len(d.terms) > 1

    def mark(self) -> tuple:
        return len(self.guards), dict(self._replaced)

    def back_to(self, mark: tuple):
        """Forgets what was asked and learned since: another node may take the same sizes otherwise."""
        count, self._replaced = mark
        for key in self.guards[count:]:
            self._guard_keys.discard(key)
        del self.guards[count:]


def show_shape(shape) -> tuple:
    """A shape as users write it: None where the size is unknown."""
    return tuple(d if isinstance(d, int) else None for d in shape)


def unknown_index(d) -> int | None:
    """Which unknown size d is, if it is one by itself."""
    if isinstance(d, Sym) and len(d.terms) == 1:
        ((monomial, coefficient),) = d.terms.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0][0] == "sym":
            return monomial[0][1]
    return None
