"""Sizes of one trace in another: symbols replaced by what stands for them there."""

from __future__ import annotations

from tandem.graph.building import _stack
from tandem.graph.symbolic import BINARY, Sym, Symbols


def substitute(d, mapping: dict):
    """d with symbols replaced: mapping gives, per symbol index, a Dim of another trace. Tuples are walked."""
    if isinstance(d, tuple):
        return tuple(substitute(x, mapping) for x in d)
    if not isinstance(d, Sym):
        return d
    total = 0
    for monomial, coefficient in d.terms.items():
        term = coefficient
        for atom in monomial:
            if atom[0] == "sym":
                if atom[1] not in mapping and d.symbols.origins[atom[1]][0] == "local":
                    mapping[atom[1]] = _local_symbol(d.symbols, atom[1])
                term = term * mapping[atom[1]]
            else:
                term = term * BINARY[atom[0]](substitute(atom[1], mapping), substitute(atom[2], mapping))
        total = total + term
    return total


def local_symbol(symbols: Symbols) -> Sym:
    """A size that exists only inside a region, which learns it when it runs (Block in ops/region.py)."""
    return symbols.new(LOCAL_HINT, ("local",), not_one=True)


LOCAL_HINT = 13  # what no size happens to be equal to


def _local_symbol(symbols: Symbols, index: int) -> Sym:
    """The symbol of the graph being built that stands for a region's own symbol in a graph that is taken over."""
    stack = _stack()
    if not stack or stack[-1].graph.symbols is symbols:
        return symbols._make({(("sym", index),): 1})
    return local_symbol(stack[-1].graph.symbols)


def symbol_indices(d, found: set | None = None) -> set:
    """Indices of the plain symbols that d mentions."""
    found = set() if found is None else found
    if isinstance(d, tuple):
        for x in d:
            symbol_indices(x, found)
    elif isinstance(d, Sym):
        for monomial in d.terms:
            for atom in monomial:
                if atom[0] == "sym":
                    found.add(atom[1])
                else:
                    symbol_indices(atom[1], found)
                    symbol_indices(atom[2], found)
    return found
