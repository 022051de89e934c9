"""Every function of td.linalg and td.fft has a docstring whose example prints what it says."""

import doctest
import pickle

import pytest

import tandem as td

FUNCTIONS = [
    (f"{space}.{name}", getattr(getattr(td, space), name))
    for space in ("linalg", "fft")
    for name in getattr(td, space).__all__
    if not name.endswith("Error")
]


@pytest.mark.parametrize(("name", "function"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_docstring(name, function):
    test = doctest.DocTestParser().get_doctest(function.__doc__, {"td": td}, name, None, 0)
    assert test.examples
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)


@pytest.mark.parametrize(("name", "function"), FUNCTIONS, ids=[name for name, _ in FUNCTIONS])
def test_pickles_give_the_same_function(name, function):
    assert pickle.loads(pickle.dumps(function)) is function
