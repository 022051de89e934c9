"""Symbolic sizes behave like the ints they stand for, and write down what was asked of them."""

import operator

from hypothesis import given
from hypothesis import strategies as st

from tandem.graph.symbolic import Sym, Symbols, ceildiv, hint, maximum, minimum, substitute, symbol_indices

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


@given(expressions())
def test_hints_are_the_values_that_ints_would_have(case):
    _, _, pool = case
    assert [y for _, y in pool] == [hint(x) for x, _ in pool]


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
