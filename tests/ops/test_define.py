"""How operators are defined: one name, one operator; threads that trace at once do not meet."""

import threading

import pytest

import tandem as td
import tandem.ops as F
from tandem.ops.define import FUNCTIONS, PRIMITIVES, Elementwise, alias, op, register


def test_a_second_primitive_of_a_name_is_refused_and_the_first_stays():
    before = PRIMITIVES["exp"]

    class Other(Elementwise):
        name = "exp"

    with pytest.raises(ValueError, match=r"(?s)an operator named 'exp' exists: Exp of .*fix:"):
        register(Other)
    assert PRIMITIVES["exp"] is before


def test_a_second_function_of_a_name_is_refused_and_the_first_stays():
    def relu(x: "Tensor"):  # noqa: F821
        return x

    with pytest.raises(ValueError, match="an operator named 'relu' exists"):
        op(relu)
    with pytest.raises(ValueError, match="an operator named 'relu' exists"):
        alias("relu", td.tanh)
    assert FUNCTIONS["relu"] is td.relu


def test_a_definition_that_runs_again_replaces_itself():
    def define():
        @register
        class DefinedTwice(Elementwise):
            name = "defined_twice"

        return DefinedTwice

    try:
        first, second = define(), define()
        assert first is not second
        assert PRIMITIVES["defined_twice"] is second
    finally:
        del PRIMITIVES["defined_twice"]


def test_threads_that_trace_at_once_keep_their_own_precision():
    """One traces under autocast; while it does, the other traces without, from beginning to end."""
    inside, done = threading.Event(), threading.Event()

    def waiting(x, y):
        inside.set()
        assert done.wait(60)
        return F.matmul(x, y)

    waiting.__annotations__ = {"x": "Tensor", "y": "Tensor"}
    product = op(waiting, hidden=True)
    results = {}

    def lowered():
        with td.autocast("cpu", dtype=td.bfloat16):
            results["lowered"] = product(td.ones(3, 4), td.ones(4, 2))

    thread = threading.Thread(target=lowered)
    thread.start()
    assert inside.wait(60)

    def plain(x, y):
        return F.matmul(x, y) + 1

    plain.__annotations__ = {"x": "Tensor", "y": "Tensor"}
    results["plain"] = op(plain, hidden=True)(td.ones(3, 4), td.ones(4, 2))
    done.set()
    thread.join(60)
    assert results["plain"].dtype is td.float32
    assert results["lowered"].dtype is td.bfloat16
