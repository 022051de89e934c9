"""Sizes of one trace in another."""

from tandem.graph.substitution import local_symbol, substitute, symbol_indices
from tandem.graph.symbolic import Symbols, maximum


def sizes():
    symbols = Symbols()
    return [symbols.new(n, ("size", i, 0), not_one=True) for i, n in enumerate((6, 4))]


def test_symbols_are_replaced_by_what_stands_for_them():
    a, b = sizes()
    c, _ = sizes()
    expression = 2 * a * b + (a + 1) // b + a % b + maximum(a, b)
    assert substitute(expression, {0: 10, 1: 3}) == 60 + 3 + 1 + 10
    there = substitute((expression, 7, (a,)), {0: c, 1: 4})
    assert there[1] == 7 and there[2] == (c,) and there[0].symbols is c.symbols and there[0].hint == 48 + 1 + 2 + 6


def test_indices_are_those_inside_quotients_too():
    a, b = sizes()
    assert symbol_indices((a // b, 3, (b,))) == {0, 1} and symbol_indices(5) == set()


def test_a_size_of_a_region_stays_one_where_nothing_is_built():
    symbols = Symbols()
    own = local_symbol(symbols)
    assert substitute(own + 1, {}) is own + 1
