"""Every public function is exercised by a test, and every docstring example prints what it says.

Names are looked for in the text of the tests, not in what ran: under pytest-xdist each worker sees only part of the tests.
"""

import doctest
import importlib
import inspect
import pathlib
import pkgutil
import re
import threading

import numpy as np
import pytest

import tandem as td
from tandem.ops.define import FUNCTIONS, METHODS
from tandem.session import reset_default_graph
from tandem.tensors import constructors

TESTS = pathlib.Path(__file__).parent
PUBLIC = {name: function for name, function in FUNCTIONS.items() if not name.startswith("_")}


def words_of_tests() -> set[str]:
    """Everything that stands after a dot or in quotes in the tests of operators: td.exp, x.exp_(), "exp"."""
    found = set()
    for folder in ("ops", "autograd", "nn", "array_api", "library"):
        for file in (TESTS / folder).rglob("test_*.py"):
            text = file.read_text()
            found.update(re.findall(r"\.([A-Za-z_]\w*)", text))
            found.update(re.findall(r"[\"']([A-Za-z_]\w*)[\"']", text))
    return found


WORDS = words_of_tests()


def is_tested(name: str) -> bool:
    """By its own name, by another name of the same function, or, for an in-place form, by the form that it is made from."""
    others = [other for other, function in PUBLIC.items() if function is PUBLIC[name]]
    if name.endswith("_"):
        others += [other[:-1] for other in others]
    return any(other in WORDS for other in others)


def test_every_function_is_tested():
    missing = sorted(name for name in PUBLIC if not is_tested(name))
    assert not missing, f"no test in tests/ops mentions {', '.join(missing)}: add a check_op (tests/check.py)"


def test_every_function_is_public():
    assert not [name for name in PUBLIC if getattr(td, name, None) is not PUBLIC[name]]
    assert not [name for name in METHODS if not hasattr(td.Tensor, name)]


def documented():
    """(name, docstring, whether an example must be in it)"""
    seen = set()
    for name, function in PUBLIC.items():
        if id(function) not in seen:
            seen.add(id(function))
            yield name, function, not name.endswith("_")
    for name, function in vars(constructors).items():
        if inspect.isfunction(function) and function.__module__ == constructors.__name__ and not name.startswith("_"):
            yield name, function, name not in ("check_device",)
    for module in (td.autograd, td.memory):
        for name in module.__all__:
            yield f"{module.__name__.rpartition('.')[2]}.{name}", getattr(module, name), False
    for module in (td.special, td.random):
        for name in module.__all__:
            if callable(getattr(module, name)) and not isinstance(getattr(module, name), type):
                yield f"{module.__name__.rpartition('.')[2]}.{name}", getattr(module, name), name not in FUNCTIONS
    for name in ("grad", "value_and_grad", "vjp"):
        yield name, getattr(td, name), True


DOCUMENTED = list(documented())
# Modules whose examples need a device, or packages with data; those of operators are run one by one above.
ELSEWHERE = (
    "tandem.ops.",
    "tandem.cuda",
    "tandem.data.sets",
    "tandem.data.text_sets",
    "tandem._runtime",
    "tandem.__main__",
    "tandem.cli",
)
NEEDS = {
    "tandem.data.sources": ("pyarrow", "fsspec"),
    "tandem.data.transforms.text": ("tokenizers",),
}  # packages of td.data
MODULES = sorted(m.name for m in pkgutil.walk_packages(td.__path__, "tandem.") if not m.name.startswith(ELSEWHERE))


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module_run(name, tmp_path, monkeypatch):
    for package in NEEDS.get(name, ()):
        pytest.importorskip(package)
    monkeypatch.chdir(tmp_path)
    reset_default_graph()
    module = importlib.import_module(name)
    names = {"td": td, "np": np, "threading": threading}
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in doctest.DocTestFinder().find(module, name, module=module, globs=names):
        runner.run(test, out=report.append)
    reset_default_graph()
    assert not runner.failures, "".join(report)


@pytest.mark.parametrize(("name", "thing", "needs_example"), DOCUMENTED, ids=[name for name, *_ in DOCUMENTED])
def test_docstring(name, thing, needs_example):
    text = thing.__doc__
    assert text, f"{name} has no docstring"
    assert text.strip().splitlines()[0].rstrip().endswith((".", ":", ")")) or "\n" in text, (
        f"the first line of {name} is a sentence"
    )
    test = doctest.DocTestParser().get_doctest(text, {"td": td}, name, None, 0)
    if needs_example:
        assert test.examples, f"the docstring of {name} has no example"
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
