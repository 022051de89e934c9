"""Symbolic sizes: integers whose value a plan learns at each call.

A `Dim` is a plain int or a `Sym`. A Sym is a polynomial over atoms (input sizes, and floor-divisions, remainders, minima and
maxima of Dims), kept in normal form, so that equal expressions are the same object. Every Sym also knows its *hint*, the value
it had in the call being traced. Shape rules are ordinary Python: when one asks `a == b`, the hint answers, and what the answer
relied on is written down as a *guard*. A plan is valid for every call that satisfies its guards, so rules need no second,
symbolic version.
"""

from __future__ import annotations

import contextlib
import math

Dim = "int | Sym"


class FreeSizeError(Exception):
    """A question about a size that has no value where it is asked; who asks turns it into an error of the operator."""


class Symbols:
    """The symbols of one trace, the guards it collected, and what is known from them."""

    are_measured = True  # whether hints are sizes of tensors that were there
    in_general = False  # whether operators are to compute with minima instead of asking, where they can (`clamped`)
    _closed = False

    def __init__(self):
        self.hints: list[int] = []
        self.origins: list[
            tuple
        ] = []  # per symbol: ("size", input, axis) or ("int", input) or ("stride", input, axis) ...
        self._not_one: set[int] = set()
        self._signed: set[int] = set()  # symbols that may be negative
        self.guards: list[tuple[str, Sym]] = []  # ("==" | "!=" | "<" | ">=", expression), each compared with 0
        self._guard_keys: set = set()
        self._interned: dict = {}
        self._atom_hints: dict = {}
        self._atom_order: dict = {}  # factors of a product are kept in the order in which the trace met them
        self._replaced: dict = {}  # atom -> Dim, learned from equality guards
        self._exact: set = set()  # atoms floordiv(a, b) without a remainder, learned from mod(a, b) == 0
        self._quotients: dict = {}  # atom floordiv(a, b) -> Dim that it is equal to
        self.reasons: dict = {}  # guard -> what needs it, in a user's words

    def new(self, hint: int, origin: tuple, not_one: bool = False, signed: bool = False) -> Sym:
        index = len(self.hints)
        self.hints.append(int(hint))
        self.origins.append(origin)
        if not_one:
            self._not_one.add(index)
        if signed:
            self._signed.add(index)
        atom = ("sym", index)
        self._atom_hints[atom] = int(hint)
        self._atom_order[atom] = len(self._atom_order)
        return self.symbol(index)

    def symbol(self, index: int) -> Sym:
        return self._make({(("sym", index),): 1})

    def require(self, relation: str, expression: Dim, reason: str | None = None):
        """Adds a guard that holds in this call: expression `relation` 0."""
        if isinstance(expression, Sym):
            self._guard(relation, expression)
            if reason is not None:
                self.reasons.setdefault((relation, expression), reason)

    @contextlib.contextmanager
    def closed(self):
        """While a graph is written for every size: what asks for one raises FreeSizeError, as no guard would be checked."""
        before, self._closed = self._closed, True
        try:
            yield
        finally:
            self._closed = before

    def answer(self, relation: str, difference: Sym) -> bool:
        """Whether `difference relation 0` holds in this trace."""
        if self._closed:
            raise FreeSizeError(difference)
        return _RELATION[relation](difference.hint, 0)

    def pin(self, d: Sym, counts: bool = True) -> int:
        """d as a plain int, which the plan then depends on. `counts`: as one that may count things, not just scale them."""
        if not d == d.hint:
            raise AssertionError("a symbol that differs from its own hint")
        return d.hint

    def has_replacements(self) -> bool:
        return bool(self._replaced)

    def _make(self, terms: dict) -> Dim:
        terms = {m: c for m, c in terms.items() if c}
        if not terms:
            return 0
        if len(terms) == 1 and () in terms:
            return terms[()]
        key = frozenset(terms.items())
        found = self._interned.get(key)
        if found is None:
            hint = 0
            for monomial, coefficient in terms.items():
                for atom in monomial:
                    coefficient *= self._atom_hints[atom]
                hint += coefficient
            found = self._interned[key] = Sym(self, terms, hint)
        return found

    def _atom(self, kind: str, a: Dim, b: Dim, hint: int) -> Dim:
        atom = (kind, a, b)
        self._atom_hints[atom] = hint
        self._atom_order.setdefault(atom, len(self._atom_order))
        return self._make({(atom,): 1})

    def _guard(self, relation: str, expression: Sym):
        key = (relation, expression)
        if key in self._guard_keys:
            return
        self._guard_keys.add(key)
        self.guards.append(key)
        if relation == "==":
            self._learn_equal(expression)

    def _learn_equal(self, expression: Sym):
        """From expression == 0, replace one plain symbol by the rest, so that equal sizes become one.

        Note [Exact quotients]
        reshape(x, (n, -1)) asks whether mod(a, n) is 0, and its size is floordiv(a, n). What needs it to be 256 then says that
        a == 256 n, which makes sizes one where the quotient itself says nothing of them; and n * floordiv(a, n) is a. Both
        follow from the guards that are there, so no guard is added.
        """
        common = math.gcd(*expression.terms.values())  # 1024 s1 == 1024 s0 says as much as s1 == s0
        terms = {m: c // common for m, c in expression.terms.items()}
        for monomial, coefficient in terms.items():
            if len(monomial) != 1 or abs(coefficient) != 1:
                continue
            atom = monomial[0]
            if atom[0] == "mod" and len(terms) == 1:
                self._learn_exact(atom[1], atom[2])
            elif atom[0] == "floordiv" and sum(atom in m for m in terms) == 1:
                rest = self._make({m: (-c if coefficient == 1 else c) for m, c in terms.items() if m != monomial})
                if not mentions(rest, {atom}):
                    self._learn_quotient(atom, rest)
        expression = self.resolve(expression)
        if isinstance(expression, Sym):
            self._learn_symbol(expression)

    def _learn_exact(self, a: Dim, b: Dim):
        atom = ("floordiv", a, b)
        self._exact.add(atom)
        if atom in self._quotients:
            self._learn(a - self._quotients[atom] * b)

    def _learn_quotient(self, atom, quotient: Dim):
        if atom in self._quotients:
            return
        self._quotients[atom] = quotient
        if isinstance(quotient, int):  # an expression might come to mention the atom once more is learned
            self._replaced[atom] = quotient
        if atom in self._exact:
            self._learn(atom[1] - quotient * atom[2])

    def _learn(self, expression: Dim):
        """What follows from guards: expression == 0."""
        expression = self.resolve(expression)
        if isinstance(expression, Sym):
            self._learn_equal(expression)

    def _learn_symbol(self, expression: Sym):
        best = None
        common = math.gcd(*expression.terms.values())
        terms = {m: c // common for m, c in expression.terms.items()}
        for monomial, coefficient in terms.items():
            if len(monomial) == 1 and monomial[0][0] == "sym" and abs(coefficient) == 1:
                atom = monomial[0]
                if sum(atom in m for m in terms) == 1 and (best is None or atom[1] > best[0][1]):
                    best = (atom, coefficient)
        if best is None:
            return
        atom, coefficient = best
        rest = self._make({m: (-c if coefficient == 1 else c) for m, c in terms.items() if m != (atom,)})
        if mentions(rest, {atom}):
            return
        self._replaced[atom] = rest
        known, new = self._exact, {atom}
        known.update(
            [
                ("floordiv", self.resolve(a), self.resolve(b))
                for _, a, b in known
                if mentions(a, new) or mentions(b, new)
            ]
        )

    def cancel(self, terms: dict) -> dict:
        """A product with n * floordiv(a, n), where that has no remainder, as one with a: see Note [Exact quotients]."""
        for monomial, coefficient in terms.items():
            for atom in monomial:
                if atom[0] != "floordiv" or atom not in self._exact:
                    continue
                rest = list(monomial)
                rest.remove(atom)
                found = divide_exactly(self._make({tuple(rest): coefficient}), atom[2])
                if found is not None:
                    others = self._make({m: c for m, c in terms.items() if m != monomial})
                    total = found * atom[1] + others
                    return total.terms if isinstance(total, Sym) else {(): total}
        return terms

    def resolve(self, d: Dim) -> Dim:
        """d with everything learned from equality guards put in."""
        if not isinstance(d, Sym) or not self._replaced:
            return d
        if not self._is_replaced(d):
            return d
        total = 0
        for monomial, coefficient in d.terms.items():
            product = coefficient
            for atom in monomial:
                product = product * self._resolve_atom(atom)
            total = total + product
        return self.resolve(total) if total is not d else d

    def _is_replaced(self, d: Dim) -> bool:
        """Whether d mentions something that resolve() would put something else in for."""
        if not isinstance(d, Sym):
            return False
        replaced, exact = self._replaced, self._exact
        for monomial in d.terms:
            for a in monomial:
                if a in replaced or (a in exact and (len(monomial) > 1 or d.terms[monomial] != 1)):
                    return True
                if a[0] != "sym" and (self._is_replaced(a[1]) or self._is_replaced(a[2])):
                    return True
        return False

    def _resolve_atom(self, atom) -> Dim:
        if atom in self._replaced:
            return self._replaced[atom]
        if atom[0] == "sym":
            return self._make({(atom,): 1})
        a, b = self.resolve(atom[1]), self.resolve(atom[2])
        return BINARY[atom[0]](a, b)

    def nonnegative_atom(self, atom) -> bool:
        if atom[0] == "sym":
            return atom[1] not in self._signed
        if atom[0] == "mod":
            return known_nonnegative(atom[2])
        if atom[0] == "max":
            return known_nonnegative(atom[1]) or known_nonnegative(atom[2])
        return known_nonnegative(atom[1]) and known_nonnegative(atom[2])


def mentions(d: Dim, atoms) -> bool:
    """Whether one of the atoms occurs in d."""
    if not isinstance(d, Sym):
        return False
    for monomial in d.terms:
        for a in monomial:
            if a in atoms or (a[0] != "sym" and (mentions(a[1], atoms) or mentions(a[2], atoms))):
                return True
    return False


def known_nonnegative(d: Dim) -> bool:
    if not isinstance(d, Sym):
        return d >= 0
    return all(c > 0 and all(d.symbols.nonnegative_atom(a) for a in m) for m, c in d.terms.items())


class Sym:
    """An integer expression over the sizes of a trace. Behaves like an int; comparisons record guards."""

    __slots__ = ("symbols", "terms", "hint", "__weakref__")

    def __init__(self, symbols: Symbols, terms: dict, hint: int):
        self.symbols = symbols
        self.terms = terms
        self.hint = hint

    # -- arithmetic

    def __add__(self, other):
        if isinstance(other, Sym):
            terms = dict(self.terms)
            for m, c in other.terms.items():
                terms[m] = terms.get(m, 0) + c
        elif isinstance(other, int):
            if other == 0:
                return self
            terms = dict(self.terms)
            terms[()] = terms.get((), 0) + other
        else:
            return NotImplemented
        return self.symbols._make(terms)

    __radd__ = __add__

    def __mul__(self, other):
        if isinstance(other, Sym):
            terms = {}
            order = self.symbols._atom_order.__getitem__
            for m1, c1 in self.terms.items():
                for m2, c2 in other.terms.items():
                    m = tuple(sorted(m1 + m2, key=order))
                    terms[m] = terms.get(m, 0) + c1 * c2
            if self.symbols._exact:
                terms = self.symbols.cancel(terms)
        elif isinstance(other, int):
            if other == 1:
                return self
            terms = {m: c * other for m, c in self.terms.items()}
            if self.symbols._exact:
                terms = self.symbols.cancel(terms)
        else:
            return NotImplemented
        return self.symbols._make(terms)

    __rmul__ = __mul__

    def __neg__(self):
        return self * -1

    def __pos__(self):
        return self

    def __sub__(self, other):
        return self + (-other) if isinstance(other, (int, Sym)) else NotImplemented

    def __rsub__(self, other):
        return -self + other

    def __floordiv__(self, other):
        return floordiv(self, other) if isinstance(other, (int, Sym)) else NotImplemented

    def __rfloordiv__(self, other):
        return floordiv(other, self)

    def __mod__(self, other):
        return mod(self, other) if isinstance(other, (int, Sym)) else NotImplemented

    def __rmod__(self, other):
        return mod(other, self)

    def __abs__(self):
        return self if self >= 0 else -self

    def __truediv__(self, other):
        return float(self) / float(other)

    def __rtruediv__(self, other):
        return float(other) / float(self)

    def __pow__(self, other):
        result = 1
        for _ in range(int(other)):
            result = result * self
        return result

    # -- comparison: the hint answers, a guard remembers

    def _compare(self, relation: str, other) -> bool:
        difference = self - other
        if not isinstance(difference, Sym):
            return _RELATION[relation](difference, 0)
        difference = self.symbols.resolve(difference)
        if not isinstance(difference, Sym):
            return _RELATION[relation](difference, 0)
        answered = known(relation, difference)
        if answered is not None:
            return answered
        answer = self.symbols.answer(relation, difference)
        if relation == "<=":  # d <= 0  is  not (-d < 0) ... kept as >= or <
            difference, relation = -difference, ">="
        elif relation == ">":
            difference, relation = -difference, "<"
        self.symbols._guard(relation if answer else _NEGATION[relation], difference)
        return answer

    def __eq__(self, other):
        if self is other:
            return True
        return self._compare("==", other) if isinstance(other, (int, Sym)) else NotImplemented

    def __ne__(self, other):
        if self is other:
            return False
        return self._compare("!=", other) if isinstance(other, (int, Sym)) else NotImplemented

    def __lt__(self, other):
        return self._compare("<", other) if isinstance(other, (int, Sym)) else NotImplemented

    def __le__(self, other):
        return self._compare("<=", other) if isinstance(other, (int, Sym)) else NotImplemented

    def __gt__(self, other):
        return self._compare(">", other) if isinstance(other, (int, Sym)) else NotImplemented

    def __ge__(self, other):
        return self._compare(">=", other) if isinstance(other, (int, Sym)) else NotImplemented

    # Interned, hence identity. A hash by contents could collide (hash(-1) == hash(-2)), and a dict would then ask __eq__, which
    # writes guards.
    __hash__ = object.__hash__

    def __bool__(self):
        return self != 0

    def __index__(self):
        """A plain int: pins the plan to this value."""
        return self.symbols.pin(self)

    __int__ = __index__

    def __float__(self):
        return float(self.symbols.pin(self, counts=False))

    def __repr__(self):
        return "+".join(_term_text(m, c) for m, c in sorted(self.terms.items(), key=str)).replace("+-", "-")

    def __format__(self, spec):
        return format(repr(self), spec)


def _atom_text(atom):
    if atom[0] == "sym":
        return f"s{atom[1]}"
    return f"{atom[0]}({atom[1]},{atom[2]})"


def _term_text(monomial, coefficient):
    parts = [_atom_text(a) for a in monomial]
    if coefficient != 1 or not parts:
        parts.insert(0, str(coefficient))
    return "*".join(parts)


_RELATION = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
_NEGATION = {"==": "!=", "!=": "==", "<": ">=", ">=": "<"}


def known(relation: str, d: Sym) -> bool | None:
    """What holds without looking at the hint, or None."""
    nonneg, nonpos = known_nonnegative(d), known_nonnegative(-d)
    positive = nonneg and known_nonnegative(d - 1)
    negative = nonpos and known_nonnegative(-d - 1)
    if relation == ">=":
        return True if nonneg else (False if negative else None)
    if relation == "<":
        return False if nonneg else (True if negative else None)
    if relation == "<=":
        return True if nonpos else (False if positive else None)
    if relation == ">":
        return False if nonpos else (True if positive else None)
    differs = positive or negative or _is_other_than_one(d)
    if differs:
        return relation == "!="
    return None


def _is_other_than_one(d: Sym) -> bool:
    """d is s - 1 (or 1 - s) for a size s that the signature says is not 1."""
    if len(d.terms) != 2:
        return False
    constant = d.terms.get((), 0)
    for monomial, coefficient in d.terms.items():
        if len(monomial) == 1 and monomial[0][0] == "sym" and monomial[0][1] in d.symbols._not_one:
            return constant == -coefficient and abs(coefficient) == 1
    return False


def divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b where b is an int or a single product, and every term of a has it as a factor."""
    if isinstance(b, int) and b == 0:
        return None
    if isinstance(a, int):
        return a // b if isinstance(b, int) and a % b == 0 else None
    if isinstance(b, int):
        if any(c % b for c in a.terms.values()):
            return None
        return a.symbols._make({m: c // b for m, c in a.terms.items()})
    if len(b.terms) != 1:
        return 1 if a is b else None
    ((divisor, coefficient),) = b.terms.items()
    terms = {}
    for m, c in a.terms.items():
        rest = list(m)
        for atom in divisor:
            if atom not in rest:
                return None
            rest.remove(atom)
        if c % coefficient:
            return None
        terms[tuple(rest)] = c // coefficient
    return a.symbols._make(terms)


def _owner(a: Dim, b: Dim) -> Symbols:
    return a.symbols if isinstance(a, Sym) else b.symbols


def floordiv(a: Dim, b: Dim) -> Dim:
    if not isinstance(a, Sym) and not isinstance(b, Sym):
        return a // b
    if b == 0:
        raise ZeroDivisionError("size expression divided by zero")
    if b is a:
        return 1
    if isinstance(b, int) and b == 1:
        return a
    if isinstance(a, int) and a == 0:
        return 0
    if isinstance(a, Sym):
        exact = divide_exactly(a, b)
        if exact is not None:
            return exact
    hint_a = a.hint if isinstance(a, Sym) else a
    hint_b = b.hint if isinstance(b, Sym) else b
    return _owner(a, b)._atom("floordiv", a, b, hint_a // hint_b)


def mod(a: Dim, b: Dim) -> Dim:
    if not isinstance(a, Sym) and not isinstance(b, Sym):
        return a % b
    if b == 0:
        raise ZeroDivisionError("size expression modulo zero")
    if b is a or (isinstance(b, int) and b == 1):
        return 0
    if isinstance(a, Sym) and divide_exactly(a, b) is not None:
        return 0
    if ("floordiv", a, b) in _owner(a, b)._exact:
        return 0
    hint_a = a.hint if isinstance(a, Sym) else a
    hint_b = b.hint if isinstance(b, Sym) else b
    return _owner(a, b)._atom("mod", a, b, hint_a % hint_b)


def minimum(a: Dim, b: Dim) -> Dim:
    """min without a guard."""
    return _extremum("min", a, b)


def maximum(a: Dim, b: Dim) -> Dim:
    """max without a guard."""
    return _extremum("max", a, b)


def _extremum(kind, a, b):
    pick = min if kind == "min" else max
    if not isinstance(a, Sym) and not isinstance(b, Sym):
        return pick(a, b)
    if a is b:
        return a
    difference = a - b
    if known_nonnegative(difference):
        return b if kind == "min" else a
    if known_nonnegative(-difference):
        return a if kind == "min" else b
    return _owner(a, b)._atom(kind, a, b, pick(hint(a), hint(b)))


def is_general(*dims: Dim) -> bool:
    """Whether dims are to be computed with as if they could be anything: no answer of a hint holds."""
    return any(isinstance(d, Sym) and d.symbols.in_general for d in dims)


def clamped(d: Dim, low: Dim, high: Dim) -> Dim:
    """d within low and high, of sizes in general."""
    return minimum(maximum(d, low), high)


def from_start(i: Dim, n: Dim) -> Dim:
    """An index that counts from the end where it is negative, counted from the start: of sizes in general."""
    return i + n * minimum(maximum(-i, 0), 1)


BINARY = {"floordiv": floordiv, "mod": mod, "min": minimum, "max": maximum}


def hint(d: Dim) -> int:
    return d.hint if isinstance(d, Sym) else d


def product(dims) -> Dim:
    total = 1
    for d in dims:
        total = total * d
    return total


def ceildiv(a: Dim, b: Dim) -> Dim:
    return -((-a) // b)
