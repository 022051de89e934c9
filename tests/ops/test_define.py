"""How operators are defined: one name, one operator; threads that trace at once do not meet."""

import threading

import numpy as np
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
        assert done.wait(300)
        return F.matmul(x, y)

    waiting.__annotations__ = {"x": "Tensor", "y": "Tensor"}
    product = op(waiting, hidden=True)
    results = {}

    def lowered():
        with td.autocast("cpu", dtype=td.bfloat16):
            results["lowered"] = product(td.ones(3, 4), td.ones(4, 2))

    thread = threading.Thread(target=lowered)
    thread.start()
    assert inside.wait(300)

    def plain(x, y):
        return F.matmul(x, y) + 1

    plain.__annotations__ = {"x": "Tensor", "y": "Tensor"}
    results["plain"] = op(plain, hidden=True)(td.ones(3, 4), td.ones(4, 2))
    done.set()
    thread.join(300)
    assert results["plain"].dtype is td.float32
    assert results["lowered"].dtype is td.bfloat16


def test_an_operator_with_its_own_math_is_one_block():
    """Nothing else keeps a list: the block below is all that eager calls, gradients, programs, vmap, deferred graphs and files of
    graphs need."""

    @register
    class Softstep(Elementwise):
        name = "test_softstep"

        def body(self, b, x):
            return x / (b.abs(x) + 1.0)

        def grad(self, g, x):
            below = F.abs(x) + 1.0
            return g / (below * below)

    @op(name="test_softstep", hidden=True)
    def softstep(x: "Tensor"):  # noqa: F821
        return Softstep()(x)

    try:
        x = td.tensor([-3.0, 0.0, 1.0, 4.0], requires_grad=True)
        expected = [-0.75, 0.0, 0.5, 0.8]
        np.testing.assert_allclose(softstep(x).detach().numpy(), expected, rtol=1e-6)
        assert td.testing.gradcheck(softstep, (x.detach().to(td.float64).requires_grad_(),))

        @td.compile
        def step(x):
            softstep(x).sum().backward()
            return softstep(x)

        np.testing.assert_allclose(step(x).detach().numpy(), expected, rtol=1e-6)
        np.testing.assert_allclose(x.grad.numpy(), [1 / 16, 1.0, 1 / 4, 1 / 25], rtol=1e-6)
        np.testing.assert_allclose(td.vmap(softstep)(x.detach().reshape(2, 2)).flatten().numpy(), expected, rtol=1e-6)
        with td.Graph() as graph:
            fed = td.placeholder(td.float32, (None,), name="x")
            made = softstep(fed)
        np.testing.assert_allclose(td.Session(graph).run(made, {fed: x.detach()}).numpy(), expected, rtol=1e-6)
        loaded = td.compile(lambda v: softstep(v))
        loaded(x.detach())
        again = type(loaded.graph()).from_json(loaded.graph().to_json())
        np.testing.assert_allclose(again.run(x.detach())[0].numpy(), expected, rtol=1e-6)
    finally:
        del PRIMITIVES["test_softstep"]
