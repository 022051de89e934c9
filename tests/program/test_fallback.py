"""When no program can be made, by a mistake of the compiler, the captured calls run eagerly."""

import warnings

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.errors import CompileWarning
from tandem.program import driver
from tandem.tracing import program

pytestmark = pytest.mark.filterwarnings("default::tandem.errors.CompileWarning")


class Planted(Exception):
    pass


def broken(*args, **kwargs):
    raise Planted("a mistake planted here")


FAULTS = {
    "join": (program, "join"),
    "passes": (driver, "_simplify"),
    "lowering": (driver, "_optimise"),
    "writing": (program, "ProgramWriter"),
}


@pytest.fixture(params=FAULTS)
def fault(request, monkeypatch):
    with td.switches(CACHE=0):
        monkeypatch.setattr(*FAULTS[request.param], broken)
        yield


def model_and_step(dropout: float = 0.3):
    td.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout), nn.Linear(8, 3))
    optimizer = td.optim.Adam(model.parameters(), lr=0.05)

    def step(x, y):
        optimizer.zero_grad()
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, y)
        loss.backward()
        optimizer.step()
        return loss, scores[:, 1:].detach(), {"grad": model[0].weight.grad.clone()}

    return model, step


def test_a_training_step_runs_all_the_same(fault):
    x, y = td.randn(5, 6), td.arange(5) % 3
    model, step = model_and_step()
    other, plain = model_and_step()
    compiled = td.compile(step)
    td.manual_seed(7)
    with pytest.warns(CompileWarning, match=r"Planted: a mistake planted here.*eagerly instead"):
        first = compiled(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # named once
        second = compiled(x, y)
    td.manual_seed(7)
    for made, expected in zip((first, second), (plain(x, y), plain(x, y)), strict=True):
        assert made[0].item() == expected[0].item()
        assert (made[1].numpy() == expected[1].numpy()).all()
        assert (made[2]["grad"].numpy() == expected[2]["grad"].numpy()).all()
    for a, b in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert (a.numpy() == b.numpy()).all()
    assert compiled._programs.num_programs == 0
    assert "no program, calls run eagerly (fallback): Planted" in compiled.explain()


def test_a_kernel_that_cannot_be_compiled(monkeypatch):
    from tandem.codegen import compile as codegen

    x = td.randn(4, 5)
    f = td.compile(lambda x: (x * 1.75 - 0.375).exp().sum(1))
    expected = f._fn(x)
    with td.switches(CACHE=0), monkeypatch.context() as patch:
        patch.setattr(codegen, "object_of", broken)
        with pytest.warns(CompileWarning, match="Planted"):
            made = f(x)
    assert (made.numpy() == expected.numpy()).all()


def test_writes_views_and_numbers(fault):
    def change(x, w, k):
        y = x.T
        w.add_(y.sum(1) * k)
        z = w[1:] * 2
        w.mul_(0.5)
        part = x[:, ::2]
        return y, z, part, w + z.sum(), x.reshape(-1)[::3] * 1, td.stack([x, x + 1]).transpose(0, 2)

    x = td.arange(12.0).reshape(3, 4)
    expected_w, made_w = td.ones(4), td.ones(4)
    expected = change(x, expected_w, 3.0)
    with pytest.warns(CompileWarning):
        made = td.compile(change)(x, made_w, 3.0)
    for a, b in zip(made, expected, strict=True):
        np.testing.assert_array_equal(a.numpy(), b.numpy())
    np.testing.assert_array_equal(made_w.numpy(), expected_w.numpy())


def test_loops_and_branches(fault):
    def run(x):
        total, _ = td.scan(lambda c, v: (c + v, c * v), x[0], x[1:])
        return td.cond(x.sum() > 0, lambda: total * 2, lambda: total - 1)

    x = td.arange(12.0).reshape(4, 3)
    with pytest.warns(CompileWarning):
        made = td.compile(run)(x)
    np.testing.assert_array_equal(made.numpy(), run(x).numpy())


def test_other_sizes_and_gradients_of_the_results(fault):
    w = td.ones(4, 2, requires_grad=True)
    f = td.compile(lambda x: ((x @ w).tanh() * 3).sum(0))
    for n in (3, 5, 1, 0):
        x = td.arange(4.0 * n).reshape(n, 4) * 0.1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CompileWarning)
            made = f(x)
        made.sum().backward()
        grad, w.grad = w.grad.numpy(), None
        f._fn(x).sum().backward()
        np.testing.assert_array_equal(grad, w.grad.numpy())
        np.testing.assert_array_equal(made.detach().numpy(), f._fn(x).detach().numpy())
        w.grad = None


def test_errors_inside_still_name_operator_and_line(fault):
    def look_up(x, i):
        y = x * 2
        return td.take_along_axis(y, i, 0) + 1

    with pytest.warns(CompileWarning), pytest.raises(IndexError) as caught:
        td.compile(look_up)(td.ones(3), td.tensor([5]))
    line = look_up.__code__.co_firstlineno + 2
    assert f"test_fallback.py:{line}" in str(caught.value)


def test_interrupts_are_no_mistakes(monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(driver, "run_pipeline", interrupt)
    with td.switches(CACHE=0), pytest.raises(KeyboardInterrupt):
        td.compile(lambda x: x * 5 + 2)(td.ones(3))


def test_the_suite_would_notice():
    """Everywhere else a program that cannot be compiled is an error: see filterwarnings in pyproject.toml."""
    import tomllib
    from pathlib import Path

    settings = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert "error::tandem.errors.CompileWarning" in settings["tool"]["pytest"]["ini_options"]["filterwarnings"]
