"""Index arithmetic: linear forms over loop variables with symbolic coefficients.

An index into a value is a tuple of Linear forms, one per axis. Movement operators map the index of their output to one of their
input; most keep it linear, so that loops over neighbouring axes can still be merged once all forms of a kernel are known.
"""

from __future__ import annotations

from tandem.codegen.buffer import is_zero, same
from tandem.graph.symbolic import Dim, Sym, divide_exactly


class Linear:
    """const + sum of coefficient * atom. Atoms are loop variables (ints) or opaque Exprs. Interned: compare with `is`."""

    __slots__ = ("const", "terms")

    def __init__(self, const: Dim, terms: dict):
        self.const = const
        self.terms = terms

    def __repr__(self):
        return " + ".join([str(self.const)] + [f"{c}*{a}" for a, c in self.terms.items()])


def exact(a: Dim, b: Dim) -> Dim | None:
    """a / b where that is known to be a whole number."""
    if same(a, b):
        return 1
    if is_zero(a):
        return 0
    if isinstance(a, Sym):
        return divide_exactly(a, b)
    return a // b if type(b) is int and b and a % b == 0 else None


class LinearForms:
    """Makes Linear forms for one kernel."""

    def __init__(self):
        self._interned: dict = {}
        self.quotients: dict = {}  # opaque Expr -> (is_quotient, Linear, divisor)
        self.zero = self.make(0, {})
        self.axes: dict[int, Linear] = {}  # axes that are not simply loops: split in two, or shifted

    def make(self, const: Dim, terms: dict) -> Linear:
        key = (const, frozenset(terms.items()))
        found = self._interned.get(key)
        if found is None:
            found = self._interned[key] = Linear(const, terms)
        return found

    def atom(self, atom) -> Linear:
        return self.make(0, {atom: 1})

    def axis(self, axis: int) -> Linear:
        """The index along an axis of the iteration space."""
        return self.axes.get(axis) or self.atom(axis)

    def replace(self, x: Linear, atom: int, by: Linear) -> Linear:
        coefficient = x.terms.get(atom)
        if coefficient is None:
            return x
        rest = self.make(x.const, {a: c for a, c in x.terms.items() if a != atom})
        return self.add(rest, self.scale(by, coefficient))

    def divide(self, x: Linear, divisor: Dim, sizes: dict) -> tuple[Linear, Linear] | None:
        """(x // divisor, x % divisor), where the terms show both: multiples of the divisor, and loops that count up to it."""
        const = exact(x.const, divisor)
        if const is None:
            return None
        outer, inner = {}, {}
        for atom, coefficient in x.terms.items():
            quotient = exact(coefficient, divisor)
            if quotient is None:
                inner[atom] = coefficient
            else:
                outer[atom] = quotient
        step: Dim = 1
        left = dict(inner)
        while left:
            found = next((a for a, c in left.items() if same(c, step) and type(a) is int and a in sizes), None)
            if found is None:
                return None
            step = step * sizes[found]
            del left[found]
        if inner and not same(step, divisor):
            return None
        return self.make(const, outer), self.make(0, inner)

    def add(self, x: Linear, y: Linear) -> Linear:
        if not y.terms and is_zero(y.const):
            return x
        if not x.terms and is_zero(x.const):
            return y
        terms = dict(x.terms)
        for a, c in y.terms.items():
            old = terms.get(a)
            if old is None:
                terms[a] = c
            else:
                total = old + c
                if is_zero(total):
                    del terms[a]
                else:
                    terms[a] = total
        return self.make(x.const + y.const, terms)

    def scale(self, x: Linear, factor: Dim) -> Linear:
        if is_zero(factor):
            return self.zero
        if type(factor) is int and factor == 1:
            return x
        return self.make(x.const * factor, {a: c * factor for a, c in x.terms.items()})

    def dot(self, index, strides) -> Linear:
        total = self.zero
        for i, s in zip(index, strides):
            total = self.add(total, self.scale(i, s))
        return self.rejoin(total) if self.quotients else total

    def rejoin(self, x: Linear) -> Linear:
        """Puts (L // n) * n + L % n back together as L, which is how reshaped contiguous memory becomes linear again."""
        changed = True
        while changed:
            changed = False
            for atom, coefficient in x.terms.items():
                if type(atom) is int or atom not in self.quotients or self.quotients[atom][0]:
                    continue
                _, form, divisor, partner = self.quotients[atom]
                if partner in x.terms and x.terms[partner] is not None:
                    wanted = coefficient * divisor
                    have = x.terms[partner]
                    if have is wanted or (type(have) is int and type(wanted) is int and have == wanted):
                        terms = {a: c for a, c in x.terms.items() if a is not atom and a is not partner}
                        x = self.add(self.make(x.const, terms), self.scale(form, coefficient))
                        changed = True
                        break
        return x
