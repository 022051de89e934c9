"""td.compile(fn, replay=True): replays while nothing has changed, runs the code again otherwise, refuses what it would lose."""

import copy
import gc
import itertools
import threading
import weakref

import numpy as np
import pytest

import tandem as td
from tandem import optim
from tandem.errors import RecompileWarning, UnsupportedError
from tests.replay.replays import Counted, few, model_and_step, refused, warmed

SCALE = 2.0


UNUSED = itertools.count(37)


def batches(count, size=5):
    g = td.Generator(3)
    return [(td.randn(size, 4, generator=g), td.randint(0, 3, (size,), generator=g)) for _ in range(count)]


# -- the same as eagerly


@pytest.mark.parametrize(
    "optimizer, runs",
    [
        (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), 2),
        (lambda p: optim.Adam(p, lr=0.01), 2),
        (lambda p: optim.AdamW(p, lr=0.01, amsgrad=True), 2),
        (lambda p: optim.Adagrad(p, lr=0.1), 2),
        (
            lambda p: optim.RMSprop(p, lr=0.01, momentum=0.5),
            5,
        ),  # it looks at its settings: another learning rate is another call
    ],
)
def test_training_is_the_same_as_compiled(optimizer, runs):
    found = []
    for options in ({}, {"replay": True}):
        model, opt, step = model_and_step(optimizer, dropout=0.5)
        schedule = optim.lr_scheduler.StepLR(opt, 3, 0.5)
        run = td.compile(step, **options)
        td.manual_seed(5)
        losses = []
        for x, y in batches(10):
            losses.append(float(run(x, y)))
            schedule.step()
        found.append(
            (
                losses,
                [p.tolist() for p in model.parameters()],
                [p.grad.tolist() for p in model.parameters()],
                td.rand(3).tolist(),
            )
        )
        state = opt.state_dict()["state"]
        found[-1] += ([v.tolist() for s in state.values() for v in s.values() if isinstance(v, td.Tensor)],)
    assert few(run._count, runs)
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=1e-5)
    for a, b in zip(found[0][1:], found[1][1:], strict=True):
        for x, y in zip(a, b, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-6)


def test_a_module_in_eval_mode():
    model, _, _ = model_and_step()
    run = td.compile(model, replay=True)
    model.eval()
    with td.no_grad():
        for x, _ in batches(5):
            np.testing.assert_allclose(model(x).tolist(), run(x).tolist(), rtol=1e-6)
    assert few(type(run)._compiled_call._count, 2)


# -- what may change between calls


def test_another_value_of_an_argument_and_another_shape():
    f = Counted(lambda x, k, n: x * k + n)
    for x, k, n in [(td.ones(2), 2, 1.0)] * 3 + [
        (td.ones(2), 3, 1.0),
        (td.ones(3), 3, 1.0),
        (td.ones(3, dtype=td.float64), 3, 1.0),
    ] * 3:
        assert f(x, k, n).tolist() == (x * k + n).tolist()
        assert f(x, k, n=n).dtype == x.dtype
    runs = f.runs
    assert f(td.ones(2), 3, 1.0).tolist() == [4, 4] and f.runs == runs


def test_a_transposed_argument_and_one_that_wants_a_gradient():
    f = warmed(lambda x: (x * 2).sum(0), td.ones(2, 2))
    x = td.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert f(x.T).tolist() == [6, 14]
    with pytest.raises(UnsupportedError, match="gradients may still flow back"):
        for _ in range(2):
            f(td.ones(2, 2, requires_grad=True))


def test_arguments_that_share_memory():
    def both(x, y):
        y.add_(x)
        return x * 1

    f = warmed(both, td.ones(2), td.ones(2))
    x = td.ones(2)
    assert f(x, x).tolist() == [2, 2]
    assert f(td.ones(2), td.ones(2)).tolist() == [1, 1]


def test_a_list_of_tensors_of_another_length():
    f = warmed(lambda xs: sum(xs), [td.ones(2), td.ones(2)])
    assert f([td.ones(2)] * 1).tolist() == [1, 1]
    assert f([td.ones(2), td.ones(2), td.ones(2)]).tolist() == [3, 3]


def helper(x, by=3):
    return x * by


def test_another_thread():
    f = warmed(lambda x: x * SCALE, td.ones(2))
    found = []

    def work():
        with td.no_grad():
            found.extend(f(td.ones(2) * i).tolist()[0] for i in range(50))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(found) == sorted([2.0 * i for i in range(50)] * 3)


def test_a_branch_on_a_python_value_takes_both_ways():
    class Config:
        on = False

    config = Config()

    def f(x):
        if config.on:
            return x * 2
        return x * 3

    g = warmed(f, td.ones(1))
    for on in (True, False, True, True, True, False):
        config.on = on
        assert g(td.ones(1)).tolist() == [2 if on else 3]


def test_a_schedule_inside():
    _, opt, step = model_and_step()
    schedule = optim.lr_scheduler.StepLR(opt, 1, 0.5)

    def f(x, y):
        loss = step(x, y)
        schedule.step()
        return loss

    refused(f, *batches(1)[0], match="changes while it runs")


# -- errors, and what is told


def test_errors_keep_the_line_of_the_user():
    table = td.ones(4, 2)
    f = Counted(lambda i: td.nn.functional.embedding(i, table) * 2)
    for _ in range(3):
        f(td.tensor([1, 2]))
    with pytest.raises(IndexError) as caught:
        f(td.tensor([1, 9]))
    assert "test_replayed.py" in str(caught.value)
    assert f(td.tensor([1, 3])).shape == (2, 2)


def test_a_warning_where_nothing_is_replayed():
    f = td.compile(lambda x, k: x * k, replay=True)
    with pytest.warns(RecompileWarning, match="an argument has another value"):
        assert [f(td.ones(1), k).tolist() for k in range(40)] == [[k] for k in range(40)]


def test_explain_tells_of_replays(monkeypatch):
    f = td.compile(lambda x: x * SCALE, replay=True)
    for _ in range(5):
        f(td.ones(2))
    assert "1 calls known, replayed 3 times; the Python code ran 2 times" in f.explain()
    monkeypatch.setitem(globals(), "SCALE", 4.0)
    f(td.ones(2))
    assert "SCALE has changed" in f.explain()


def test_not_on_other_machines():
    class Elsewhere:
        def compiled_function(self, name):
            return None

    with pytest.raises(UnsupportedError, match="replay=True is for programs of this process"):
        td.compile(lambda x: x, replay=True, target=Elsewhere())


def test_what_happens_once_in_a_process_is_no_other_call():
    """The first call makes kernels and plans for a shape that nothing had before, the second finds them."""
    shape = next(UNUSED), 3
    f = Counted(lambda x: (x * 3 + 1).tanh().sum(0).exp())
    for _ in range(4):
        f(td.ones(*shape))
    assert f.runs == 2, f.compiled.explain()


def test_copies_are_replayed_too():
    f = td.compile(helper, replay=True)
    g = copy.copy(f)
    for _ in range(4):
        assert g(td.ones(2)).tolist() == [3, 3]
    assert few(g._count, 2) and f._count == 0


def test_it_is_part_of_another_compiled_function():
    inner = td.compile(lambda x: x * SCALE, replay=True)
    outer = td.compile(lambda x: inner(x) + 1)
    assert outer(td.ones(2)).tolist() == [3, 3]


def test_memory_of_a_call_and_cycles_are_let_go():
    class Trainer:
        def __init__(self):
            self.w = td.ones(1000, requires_grad=True)
            self.step = td.compile(self.work, replay=True)

        def work(self, x):
            loss = (self.w * x).sum()
            loss.backward()
            with td.no_grad():
                self.w.sub_(self.w.grad)
            self.w.grad = None
            return loss

    trainer = Trainer()
    for _ in range(4):
        trainer.step(td.ones(1000))
    assert few(trainer.step._count, 2)
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None


def test_a_vertex_program_is_refused():
    structure, _ = td.Structure.from_nested([(0, 1)])
    cell = td.vertex(lambda children, x: x + children.sum(0))
    assert len(structure.roots) == 1  # computed once, before

    def step(x):
        return cell(structure, x, state=td.zeros(2)).sum()

    replayed = td.compile(step, replay=True)
    with pytest.raises(td.UnsupportedError, match="cannot be replayed"):
        for _ in range(4):
            replayed(td.ones(3, 2))
