"""Bodies of loops: what they may read, write and return."""

import numpy as np
import pytest

import tandem as td
from tests.control.agree import check
from tests.control.checks import both

D = td.float64


def rand(*shape):
    return td.tensor(np.random.default_rng(sum(shape) + len(shape)).standard_normal(shape), dtype=D)


def test_containers_come_back_as_they_went():
    def step(carry, x):
        h, (c, n) = carry["h"], carry["rest"]
        return {"h": h + x["a"], "rest": (c * h, n + 1)}, [x["b"] * h, None]

    def f(h, a, b):
        return td.scan(step, {"h": h, "rest": (h * 2, td.tensor(0))}, {"a": a, "b": b})

    carry, (ys, nothing) = td.compile(f)(rand(3), rand(4, 3), rand(4, 3))
    assert nothing is None
    assert int(carry["rest"][1]) == 4
    assert ys.shape == (4, 3)
    check(lambda *ts: [f(*ts)[0]["h"], f(*ts)[0]["rest"][0], f(*ts)[1][0]], rand(3), rand(4, 3), rand(4, 3))


# -- nothing stale


def test_the_body_may_change_between_calls():
    state = {"k": 1.0, "w": td.tensor(2.0)}
    f = td.compile(lambda x: td.scan(lambda c, _: (c * state["w"] + state["k"], None), x, length=2)[0], whole=True)
    assert float(f(td.tensor(1.0))) == 7
    state["k"] = 2.0
    assert float(f(td.tensor(1.0))) == 10
    state["w"] = td.tensor(3.0)
    assert float(f(td.tensor(1.0))) == 17
    assert f._programs.num_programs == 1


def test_a_carry_that_changes_its_shape_is_named():
    for text in both(lambda x: td.scan(lambda c, _: ({"h": c["h"], "n": td.concat([c["n"], c["n"]])}, None), x, length=2),
                     {"h": td.ones(2), "n": td.ones(3)}):  # fmt: skip
        assert "carry['n'] is float32 (3,) before an iteration and float32 (6,) after it" in text
        assert "test_body.py" in text


def test_a_variable_that_changes_its_dtype_is_named():
    for text in both(
        lambda x: td.while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, v / 2), (td.tensor(0), x)), td.tensor(3)
    ):
        assert "variable[1] is int64 () before an iteration and float32 () after it" in text


def test_other_containers_are_refused():
    for text in both(lambda x: td.scan(lambda c, _: ([c, c], None), x, length=2), td.ones(2)):
        assert "were * before the body and are [*, *] after it" in text


def test_a_body_that_reads_values_says_so():
    f = td.compile(lambda x: td.scan(lambda c, _: (c * float(c.sum()), None), x, length=2))
    with pytest.raises(td.TandemError, match="reads the value of a tensor"):
        f(td.ones(2))
    assert float(td.compile(lambda x: x * 2)(td.tensor(1.0))) == 2  # nothing is left broken


def test_a_body_that_writes_to_the_outside_says_so():
    total = td.zeros(2)

    def f(x):
        return td.scan(lambda c, _: (total.add_(c), None), x, length=2)

    with pytest.raises(td.TandemError, match="writes in place"):
        td.compile(f)(td.ones(2))


def test_a_tensor_that_only_exists_inside_a_body_is_refused_outside():
    kept = []

    def step(c, _):
        kept.append(c * 2)
        return c + 1, None

    f = td.compile(lambda x: td.scan(step, x, length=2)[0])
    f(td.ones(3))
    in_a_loop = lambda t: td.scan(lambda c, _: (c + t, None), td.ones(3), length=1)
    compiled = lambda t: td.compile(lambda x: x + t)(td.ones(3))
    uses = [lambda t: t + 1, lambda t: t.tolist(), lambda t: t.add_(1), lambda t: t[0], lambda t: t.numpy(), repr]
    for use in [*uses, compiled, in_a_loop]:
        with pytest.raises(td.TandemError, match="without a value"):
            use(kept[0])
    assert f(td.ones(3)).tolist() == [3, 3, 3]
