"""Sizes that are not known while a graph is built.

Operators are asked for the types of their results when a graph is built, before any tensor is there. Their rules compare sizes; an
unknown size is taken to fit: equal to what it must be equal to, large, and divisible. Nothing computed relies on it, since each
run asks the rules again with the sizes it has (program.py).
"""

from __future__ import annotations

import re

from tandem.errors import TandemError, UnsupportedError
from tandem.graph.substitution import symbol_indices
from tandem.graph.symbolic import Sym, Symbols

HINT = 720720  # divisible by every number to 16


class UnknownSizes(Symbols):
    """The symbols of a deferred graph: one for each unknown size of a placeholder."""

    are_measured = False
    inferring = False  # whether operators are being asked for types

    def new_unknown(self, placeholder: str, axis: int) -> Sym:
        return self.new(HINT, ("unknown", placeholder, axis), not_one=True)

    def answer(self, relation: str, difference: Sym) -> bool:
        if relation in ("==", "!="):
            return self._may_be_zero(difference) == (relation == "==")
        return super().answer(relation, difference)

    def _may_be_zero(self, d: Sym) -> bool:
        """Whether some sizes make d zero, as far as signs tell. An unknown size is taken to be neither 0 nor 1."""
        constant = d.terms.get((), 0)
        if d.hint == 0:
            return True
        if len(d.terms) == 1:
            return any(atom[0] == "mod" for monomial in d.terms for atom in monomial)
        signs = {c > 0 for monomial, c in d.terms.items() if monomial}
        if len(signs) == 1 and constant:
            return (-constant if signs.pop() else constant) > 1
        return len(signs) == 2

    def pin(self, d: Sym, counts: bool = True) -> int:
        if self.inferring and not counts:  # a factor, say, which types do not depend on
            return d.hint
        _, owner, axis = self.origins[min(symbol_indices(d))]
        raise UnsupportedError(
            None,
            f"the size of axis {axis} of {getattr(owner, 'name', owner)!r} is unknown and cannot become a Python number",
            fix="inside `with graph:` pass the size on as it is, or give the placeholder a known size",
        )

    def mark(self) -> tuple:
        return len(self.guards), dict(self._replaced), set(self._exact), dict(self._quotients)

    def back_to(self, mark: tuple):
        """Forgets what was asked and learned since: another node may take the same sizes otherwise."""
        count, self._replaced, self._exact, self._quotients = mark
        for key in self.guards[count:]:
            self._guard_keys.discard(key)
        del self.guards[count:]


def show_shape(shape) -> tuple:
    """A shape as users write it: None where the size is unknown."""
    return tuple(d if isinstance(d, int) else None for d in shape)


def name_unknown(error: TandemError):
    """Has the text of an error say None where it names a size that only stands in for an unknown one."""

    def name(text):
        return text and re.sub(r"\d+", lambda m: "None" if int(m[0]) and int(m[0]) % HINT == 0 else m[0], text)

    error.rule, error.fix = name(error.rule), name(error.fix)
    error.args = (error._text(),)


def unknown_index(d) -> int | None:
    """Which unknown size d is, if it is one by itself."""
    if isinstance(d, Sym) and len(d.terms) == 1:
        ((monomial, coefficient),) = d.terms.items()
        if coefficient == 1 and len(monomial) == 1 and monomial[0][0] == "sym":
            return monomial[0][1]
    return None
