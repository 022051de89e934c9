"""Symbolic sizes behave like the ints they stand for, and write down what was asked of them."""

import itertools
import operator

from hypothesis import given, settings
from hypothesis import strategies as st

from tandem.graph.substitution import substitute, symbol_indices
from tandem.graph.symbolic import Sym, Symbols, ceildiv, hint, maximum, minimum

_OPERATORS = [operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, minimum, maximum]


@st.composite
def expressions(draw):
    """(expression over symbols, the same over ints), built by random operations."""
    symbols = Symbols()
    values = draw(st.lists(st.integers(0, 9), min_size=1, max_size=3))
    pool = [(symbols.new(v, ("size", 0, i)), v) for i, v in enumerate(values)] + [(2, 2), (3, 3)]
    for _ in range(draw(st.integers(1, 6))):
        (a, x), (b, y) = draw(st.sampled_from(pool)), draw(st.sampled_from(pool))
        op = draw(st.sampled_from(_OPERATORS))
        if op in (operator.floordiv, operator.mod) and y == 0:
            continue
        pool.append((op(a, b), {minimum: min, maximum: max}.get(op, op)(x, y)))
    return symbols, values, pool


@settings(deadline=None)  # the machine may be busy
@given(expressions())
def test_hints_are_the_values_that_ints_would_have(case):
    _, _, pool = case
    assert [y for _, y in pool] == [hint(x) for x, _ in pool]


@settings(deadline=None)  # the machine may be busy
@given(expressions())
def test_comparisons_answer_like_ints_and_guards_hold(case):
    symbols, _, pool = case
    for a, x in pool:
        for b, y in pool:
            assert (a == b) == (x == y)
            assert (a < b) == (x < y)
            assert (a <= b) == (x <= y)
    relations = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}
    assert all(relations[relation](expression.hint, 0) for relation, expression in symbols.guards)


@settings(deadline=None)  # the machine may be busy
@given(expressions(), st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_substituting_values_evaluates(case, replacement):
    _, values, pool = case
    mapping = dict(enumerate(values))
    assert [y for _, y in pool] == [substitute(x, mapping) for x, _ in pool]


def test_equal_expressions_are_one_object():
    symbols = Symbols()
    a, b = symbols.new(3, ("size", 0, 0)), symbols.new(5, ("size", 0, 1))
    assert (a + b) * 2 is 2 * b + a + a
    assert a * b // b is a
    assert (a * b) % a == 0
    assert a - a == 0


def test_an_equality_unifies_two_sizes():
    symbols = Symbols()
    a, b = symbols.new(4, ("size", 0, 0)), symbols.new(4, ("size", 1, 0))
    assert a == b
    assert symbols.resolve(a * 2 + b) is a * 3
    assert len(symbols.guards) == 1
    assert a == b  # known now: no second guard
    assert len(symbols.guards) == 1


def test_an_equality_of_multiples_unifies_two_sizes():
    symbols = Symbols()
    a, b = symbols.new(4, ("size", 0, 0)), symbols.new(4, ("size", 1, 0))
    assert a * 1024 == b * 1024
    assert symbols.resolve(b) is a
    c = symbols.new(6, ("size", 2, 0))
    assert c * 3 == a * 3 + 6
    assert symbols.resolve(c) is a + 2


def test_a_quotient_without_remainder_unifies_sizes():
    """What reshape(x, (n, -1)) asks, and then a product whose matrix has 256 rows."""
    symbols = Symbols()
    s, n, m = (symbols.new(v, ("size", i, 0)) for i, v in enumerate((35, 700, 35)))
    width = s * 5120 // n
    assert (s * 5120) % n == 0
    assert n * width is s * 5120 and type((s * 5120) % n) is int
    assert width == 256
    assert symbols.resolve(n) is s * 20 and symbols.resolve(width) == 256
    assert n * 1024 == m * 20480
    assert symbols.resolve(m) is s
    asked = len(symbols.guards)
    assert m == s and n == s * 20
    assert len(symbols.guards) == asked  # what follows from guards needs none


def test_the_remainder_may_be_asked_for_after_the_quotient():
    symbols = Symbols()
    s, n = symbols.new(12, ("size", 0, 0)), symbols.new(4, ("size", 1, 0))
    assert s // n == 3
    assert symbols.resolve(s) is s  # it might be 13 in another call
    assert s % n == 0
    assert symbols.resolve(n) * 3 is symbols.resolve(s) or symbols.resolve(s) is symbols.resolve(n) * 3


@st.composite
def programs(draw):
    """(values of sizes, steps): a step is (operator, a, b) or ("ask", a, b); operands are counted: sizes, 1, 2, 3, 6, results."""
    values = draw(st.lists(st.integers(0, 6), min_size=2, max_size=3))
    count = len(values) + 4
    steps = []
    for _ in range(draw(st.integers(1, 7))):
        op = draw(st.sampled_from([*_OPERATORS, operator.mul, operator.floordiv, "ask", "ask", "divides"]))
        a, b = draw(st.integers(0, count - 1)), draw(st.integers(0, count - 1))
        if op == "divides":  # as a reshape does
            steps += [(operator.mod, a, b), ("zero", count, count), (operator.floordiv, a, b)]
            count += 2
        else:
            steps.append((op, a, b))
            count += op != "ask"
    return values, steps


def _run(sizes, steps) -> list:
    pool = [*sizes, 1, 2, 3, 6]
    for op, a, b in steps:
        if op == "ask":
            pool[a] == pool[b]  # noqa: B015
        elif op == "zero":
            pool[a] == 0  # noqa: B015
        else:
            pool.append({minimum: min, maximum: max}.get(op, op)(pool[a], pool[b]) if isinstance(pool[a], int) and
                        isinstance(pool[b], int) else op(pool[a], pool[b]))  # fmt: skip
    return pool


@settings(max_examples=150, deadline=None)
@given(programs())
def test_what_was_learned_holds_wherever_the_guards_do(case):
    values, steps = case
    symbols = Symbols()
    try:
        pool = _run([symbols.new(v, ("size", 0, i)) for i, v in enumerate(values)], steps)
    except ZeroDivisionError:
        return
    assert [hint(d) for d in pool] == _run(values, steps)
    relations = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, ">=": operator.ge}
    for other in itertools.product(range(8), repeat=len(values)):
        mapping = dict(enumerate(other))
        if all(relations[r](substitute(e, mapping), 0) for r, e in symbols.guards):
            expected = _run(list(other), steps)
            assert expected == [substitute(d, mapping) for d in pool]
            assert expected == [substitute(symbols.resolve(d), mapping) for d in pool]


def test_what_is_known_needs_no_guard():
    symbols = Symbols()
    a = symbols.new(4, ("size", 0, 0), not_one=True)
    assert a >= 0 and a != 1 and a + 1 > 0 and a != -1
    assert not symbols.guards


def test_index_pins_the_value():
    symbols = Symbols()
    a = symbols.new(4, ("size", 0, 0))
    assert [0, 1, 2, 3] == list(range(a))
    assert symbols.guards and symbols.resolve(a) == 4


def test_ceildiv_and_symbol_indices():
    symbols = Symbols()
    a, b = symbols.new(7, ("size", 0, 0)), symbols.new(2, ("size", 0, 1))
    assert 4 == hint(ceildiv(a, b))
    assert {0, 1} == symbol_indices((a // b, 3))
    assert isinstance(ceildiv(a, b), Sym)
