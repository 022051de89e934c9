"""Programs written to the standard can call every function: names, order, kinds and defaults of parameters fit.

Tandem's functions may take more: further parameters, positions where the standard wants keywords, names where it wants positions.
"""

import inspect

import pytest

import tandem as td
from tests.array_api import standard

P = inspect.Parameter
POSITIONAL = (P.POSITIONAL_ONLY, P.POSITIONAL_OR_KEYWORD)
# Defaults that differ: a value that means the same.
SAME = {("std", "correction"): (None,), ("var", "correction"): (None,)}


def fits(name: str, ours: inspect.Signature, wanted: inspect.Signature):
    parameters = list(ours.parameters.values())
    by_name = ours.parameters
    for i, w in enumerate(wanted.parameters.values()):
        if w.kind is P.KEYWORD_ONLY:
            assert w.name in by_name, f"{name} has no parameter {w.name}"
            p = by_name[w.name]
            assert p.kind in (P.KEYWORD_ONLY, P.POSITIONAL_OR_KEYWORD), f"{w.name} of {name} cannot be given by keyword"
        else:
            p = parameters[i]
            if w.kind is P.VAR_POSITIONAL:
                assert p.kind is P.VAR_POSITIONAL, f"{name} does not take any number of arguments"
            elif w.kind is P.POSITIONAL_ONLY:
                assert p.kind in POSITIONAL, f"parameter {i} of {name} cannot be given by position"
            else:
                assert (p.name, p.kind) == (w.name, P.POSITIONAL_OR_KEYWORD), f"parameter {i} of {name} is {p}, not {w}"
        if w.default is not P.empty:
            assert p.default == w.default or p.default in SAME.get((name, w.name), ()), (
                f"{w.name} of {name} is {p.default!r} by default, not {w.default!r}"
            )
    needed = [p for p in parameters if p.default is P.empty and p.kind in (*POSITIONAL, P.KEYWORD_ONLY)]
    assert all(p.name in wanted.parameters or i < len(wanted.parameters) for i, p in enumerate(needed)), (
        f"{name} needs more than the standard gives: {ours}"
    )


@pytest.mark.parametrize(("name", "wanted"), standard.namespace().items())
def test_function(name, wanted):
    fits(name, inspect.signature(getattr(td, name)), wanted)


@pytest.mark.parametrize(("name", "wanted"), standard.LINALG.items())
def test_linalg(name, wanted):
    fits(name, inspect.signature(getattr(td.linalg, name)), wanted)


@pytest.mark.parametrize(("name", "wanted"), standard.FFT.items())
def test_fft(name, wanted):
    fits(name, inspect.signature(getattr(td.fft, name)), wanted)


@pytest.mark.parametrize(("name", "wanted"), standard.methods().items())
def test_method(name, wanted):
    fits(name, inspect.signature(getattr(td.ones(2), name)), wanted)


@pytest.mark.parametrize(("name", "wanted"), standard.parse(standard.INFO).items())
def test_info(name, wanted):
    fits(name, inspect.signature(getattr(td.__array_namespace_info__(), name)), wanted)


def test_names_of_everything_else():
    assert td.__array_api_version__ == "2025.12"
    for name in standard.DTYPES:
        assert isinstance(getattr(td, name), td.dtypes.DType)
    for name in standard.ATTRIBUTES:
        assert hasattr(td.ones((2, 2)), name)
    assert (td.e, td.pi, td.inf) == (2.718281828459045, 3.141592653589793, float("inf"))
    assert td.nan != td.nan and td.newaxis is None
