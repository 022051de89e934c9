"""Formulas in pieces, from what holds for many."""

import pytest

from tandem.export import formulas
from tandem.export.pieces import Extremum, Split, in_pieces

PLACES = [{"n": n, "t": t} for n in (*range(1, 10), 12, 40, 7919) for t in (1, 2, 3, 5, 7907)]
FUNCTIONS = {
    "at least": (lambda n, t: max(n - 3, 1), formulas.line({"n": 1}, -3)),
    "at most": (lambda n, t: min(n, 3), formulas.Plain(3)),
    "a distance": (lambda n, t: abs(n - 4), formulas.line({"n": 1}, -4)),
    "the smaller": (lambda n, t: min(n, t), formulas.line({"t": 1}, 0)),
    "what is left": (lambda n, t: max(n - t, 0), formulas.line({"n": 1, "t": -1}, 0)),
    "a question between places": (lambda n, t: 2 if n > 25 else 7, formulas.Plain(2)),
    "few of them": (lambda n, t: {1: 4, 2: 9, 3: 1}.get(n, n), formulas.line({"n": 1}, 0)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_formulas_in_pieces(name):
    fn, many = FUNCTIONS[name]
    at = lambda sizes: fn(**sizes)
    found = in_pieces(at, many, [(s, at(s)) for s in PLACES], ["n", "t"], True)
    for n in (1, 2, 3, 4, 25, 26, 8000):
        for t in (1, 4, 7907):
            assert fn(n, t) == found.function({"n": n, "t": t}) == found.at({"n": n, "t": t})


def test_what_has_none():
    at = lambda sizes: sizes["n"] * 7 % 11 * (sizes["n"] < 100)
    assert (
        in_pieces(at, formulas.Plain(0), [({"n": n}, at({"n": n})) for n in (*range(1, 10), 50, 200)], ["n"], True)
        is None
    )


def test_pieces_are_whole_where_their_parts_are():
    half = formulas.Plain(0.5)
    assert Split("n", 3, formulas.Plain(1), formulas.Plain(2)).is_whole
    assert not Extremum(True, (half, formulas.Plain(1))).is_whole
