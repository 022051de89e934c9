"""What a compiled call that fails or is interrupted leaves behind: nothing without a value."""

import numpy as np
import pytest

import tandem as td
from tandem import _runtime, nn


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", td.zeros(()))
        self.seen = None
        self.table = nn.Embedding(3, 2)

    def forward(self, index):
        found = self.table(index * 1)  # a bad index is found when the program runs
        self.calls = self.calls + 1
        self.seen = found.detach() * 2
        return found.sum()


def test_attributes_of_modules_are_what_they_were():
    eager, compiled = Counting(), td.compile(Counting())
    for module in (eager, compiled):
        for index in (1, 7, 1):
            if index == 7:
                before = module.seen
                with pytest.raises(IndexError):
                    module(td.tensor([index]))
                assert module.seen is before
            else:
                module(td.tensor([index])).backward()
        assert module.calls.item() == 2
        assert module.state_dict()["calls"].item() == 2


def test_an_attribute_that_was_not_there_is_not_there_again():
    class Late(nn.Module):
        def forward(self, index):
            self.late = td.arange(3.0)[index + 0]
            return self.late * 1

    module = td.compile(Late())
    with pytest.raises(IndexError):
        module(td.tensor([9]))
    assert not hasattr(module, "late")
    assert module(td.tensor([2])).tolist() == [2] and module.late.tolist() == [2]


def test_an_attribute_bound_twice_goes_back_to_the_first():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", td.ones(()))

        def forward(self, index):
            y = td.arange(3.0)[index + 0].sum()
            self.n = self.n + y
            self.n = self.n * 2
            return self.n * 1

    module = td.compile(Twice())
    with pytest.raises(IndexError):
        module(td.tensor([5]))
    assert module.n.item() == 1
    assert module(td.tensor([1])).item() == 4


def test_gradients_are_what_they_were():
    table = nn.Embedding(5, 3)
    step = td.compile(lambda index: table(index + 0).sum().backward())
    with pytest.raises(IndexError):
        step(td.tensor([9]))
    assert table.weight.grad is None
    step(td.tensor([1]))
    once = table.weight.grad.numpy().copy()
    with pytest.raises(IndexError):
        step(td.tensor([9]))
    np.testing.assert_array_equal(table.weight.grad, once)
    step(td.tensor([1]))
    np.testing.assert_array_equal(table.weight.grad, 2 * once)


def test_a_gradient_that_was_set_is_what_it_was():
    p = td.ones(2).requires_grad_()
    p.grad = td.full((2,), 5.0)

    @td.compile
    def scale(index):
        p.grad = p.grad * td.arange(3.0)[index + 0]

    with pytest.raises(IndexError):
        scale(td.tensor([4]))
    assert p.grad.tolist() == [5, 5]
    scale(td.tensor([2]))
    assert p.grad.tolist() == [10, 10]


def test_a_matrix_without_a_factor():
    p = td.eye(2).requires_grad_()
    step = td.compile(lambda sign: td.linalg.cholesky(p * sign).sum().backward())
    with pytest.raises(td.LinAlgError):
        step(td.tensor(-1.0))
    assert p.grad is None
    step(td.tensor(1.0))
    assert np.isfinite(p.grad.numpy()).all()


@pytest.mark.parametrize("where", ["tracing.program.join", "program.driver.run_pipeline", "program.driver.lower",
                                   "program.driver.memory_of", "compile"])  # fmt: skip
def test_an_interrupt_while_a_program_is_compiled(monkeypatch, where):
    class Counted(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)
            self.register_buffer("n", td.zeros(()))

        def forward(self, x):
            self.n = self.n + 1
            return (self.linear(x) * 1.1).sin().sum()

    def interrupt(*_, **__):
        if where.endswith("lower"):  # between entering a trace and noting that it is to be left
            _runtime.enter_trace()
        raise KeyboardInterrupt

    module = td.compile(Counted())
    with monkeypatch.context() as patched:
        if where == "compile":
            patched.setattr(td.codegen.loops.Kernel, "address", interrupt)
        else:
            patched.setattr(f"tandem.{where}", interrupt)
        patched.setattr("tandem.tracing.program.key_of", lambda *_: "")
        with pytest.raises(KeyboardInterrupt):
            module(td.ones(2, 3)).backward()
    assert module.n.item() == 0 and module.linear.weight.grad is None
    module(td.ones(2, 3)).backward()
    assert module.n.item() == 1
    assert np.isfinite(module.linear.weight.grad.numpy()).all()


@pytest.mark.parametrize("second", [lambda n, a: td.from_numpy(n), lambda n, a: td.from_dlpack(a)])
def test_memory_that_two_tensors_share_is_read_after_a_write(second):
    def f(a, b):
        a.fill_(7.0)
        first = b[0].item()
        a.add_(1)
        return first, b.tolist(), str(b), b.numpy().copy().tolist()

    results = []
    for function in (f, td.compile(f)):
        n = np.zeros(3, "float32")
        a = td.from_numpy(n)
        results.append(function(a, second(n, a)))
    assert results[0] == results[1] == (7, [8, 8, 8], "tensor([8., 8., 8.])", [8, 8, 8])
