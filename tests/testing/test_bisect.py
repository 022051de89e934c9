"""The pass or kernel at fault."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem.passes import pipeline
from tandem.passes.graph_pass import graph_pass
from tandem.passes.rebuild import rebuild

# -- bisect


@graph_pass
def doubles_exp(graph):
    """A pass with a mistake."""
    return rebuild(graph, lambda node, inputs: F.Exp()(F.Add()(*inputs * 2)) if node.op.name == "exp" else None)


def test_the_pass_at_fault_is_found(monkeypatch):
    monkeypatch.setattr(pipeline, "PIPELINE", [*pipeline.PIPELINE, doubles_exp])
    w = td.ones(3)

    def step(x):
        w.add_(x.exp().sum(0))
        return {"loss": [x.neg(), w.sum()]}

    found = td.bisect(td.compile(step), td.ones(2, 3), state=[w])
    assert not found.agree and found.passes == ("doubles_exp",) and found.output == 1
    assert str(found).endswith("without doubles_exp they agree")
    assert w.tolist() == [1, 1, 1]


def test_bisect_puts_modules_gradients_and_arguments_back():
    model = td.nn.Sequential(td.nn.Linear(3, 2), td.nn.BatchNorm1d(2))
    optimizer = td.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        loss = model(x).exp().sum()
        loss.backward()
        optimizer.step()
        return loss

    before = [t.detach().numpy().copy() for t in model.state_dict().values()]
    for state in (model, [model[0], *model[1].parameters(), *model[1].buffers()]):
        assert td.bisect(step, td.randn(4, 3), state=state).agree
    for a, b in zip(model.state_dict().values(), before, strict=True):
        np.testing.assert_array_equal(a.detach().numpy(), b)
    x = td.ones(3)
    assert td.bisect(lambda x, more: x.add_(1) + more["y"][0].mul_(2), x, more={"y": [x]}).agree and x.tolist() == [
        1,
        1,
        1,
    ]
    with pytest.raises(td.DTypeError, match=r"bisect: state has a int(.|\n)*fix: .*state=model"):
        td.bisect(step, x, state=[3])


def test_what_is_written_into_arguments_is_compared(monkeypatch):
    monkeypatch.setattr(pipeline, "PIPELINE", [*pipeline.PIPELINE, doubles_exp])
    x = td.ones(3)
    found = td.bisect(lambda x: x.copy_(x.exp()) and None, x.reshape(3)[:1])
    assert not found.agree and found.passes == ("doubles_exp",)


def test_the_graph_that_arguments_run():
    @td.compile
    def f(x, times=2):
        return x * times if x.ndim == 1 else x.exp()

    assert "exp" in str(f.graph(td.ones(2, 2))) and "mul" in str(f.graph(td.ones(2), times=3))
    assert "exp" in str(f.graph(td.ones(2, 2))) and "exp" in str(f.graph(0)) and "mul" in str(f.graph())
    assert f.memory(td.ones(16, 16))["outputs"] == 1024
    fast = td.compile(td.nn.Linear(3, 2))
    assert "matmul" in str(fast.graph(td.ones(4, 3))) and str(fast.graph(0)) == str(fast.graph())
    with pytest.raises(td.ValueRangeError, match="no program ran"), td.switches(EAGER=1):
        f.graph(td.ones(2))


def test_the_kernel_at_fault_is_found(monkeypatch):
    """A kernel that subtracts where it should add, and only where it is fused."""
    from tandem.codegen import compile as codegen

    real = codegen.text_of

    def wrong(kernel):
        text = real(kernel)
        return text.replace(" fadd ", " fsub ") if kernel.name.startswith("fused_") and "sinh" in kernel.name else text

    monkeypatch.setattr(codegen, "text_of", wrong)
    w = td.ones(3)

    def step(x):
        y = td.cumsum(x.cos(), 0)
        z = y.sinh() + 0.6251
        total = td.cumsum(z, 0)
        w.mul_(total.sum(0))
        return total, y * 2

    with td.switches(CACHE=0):
        found = td.bisect(td.compile(step), td.linspace(0.0, 1.0, 6).reshape(2, 3), state=[w])
    assert not found.agree and found.passes == ()
    (fault,) = found.steps
    assert fault.name.startswith("kernel fused_") and "sinh" in fault.name
    assert fault.difference > 1 and w.tolist() == [1, 1, 1]
    line = step.__code__.co_firstlineno + 2
    assert f"sinh   # test_bisect.py:{line}" in str(found)


def test_a_right_program_has_no_kernel_at_fault():
    """Every step of a training step, with writes, random numbers and library calls, gives what its operators give."""
    from tandem.testing.bisect import _parts
    from tandem.testing.judge import judge

    td.manual_seed(2)
    model = td.nn.Sequential(
        td.nn.Conv2d(2, 4, 3),
        td.nn.BatchNorm2d(4),
        td.nn.ReLU(),
        td.nn.Flatten(),
        td.nn.Linear(64, 5),
        td.nn.Dropout(0.2),
    )
    optimizer = td.optim.AdamW(model.parameters(), lr=0.01)
    faults, judged = [], []

    @td.compile
    def step(x, y):
        loss = td.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    def watch(tensors, numbers, ints):
        graph = step._report[-1]["graph"]
        before = [t.clone() for t in tensors]
        faults.extend(judge(graph, tensors, numbers, ints, lambda a, b: _parts([a], [b], rtol=1e-3, atol=1e-5)[:2]))
        judged.append(len(graph.schedule.steps))
        for a, b in zip(tensors, before, strict=True):
            assert (a.numpy() == b.numpy()).all()

    step._report.fresh = True
    step._programs.set_watch(watch)
    step(td.randn(3, 2, 6, 6), td.arange(3))
    assert judged[0] > 10 and faults == []


def test_a_right_function_has_no_pass_at_fault():
    td.manual_seed(1)
    assert td.bisect(lambda x: td.dropout(x, 0.5) * 2, td.ones(50)).agree
