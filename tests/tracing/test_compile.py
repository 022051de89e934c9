"""td.compile: the same values, gradients, updates and errors as eagerly, in few programs."""

import copy
import inspect
import pickle
import threading
from typing import NamedTuple

import numpy as np
import pytest

import tandem as td


class Point(NamedTuple):
    x: td.Tensor
    n: int


def parameters(seed=0):
    rng = np.random.default_rng(seed)
    return [
        td.tensor(rng.normal(size=s).astype(np.float32) * 0.3, requires_grad=True)
        for s in ((6, 16), (16,), (16, 3), (3,))
    ]


def train_step(params, x, y, lr=0.1, dropout=0.0):
    w1, b1, w2, b2 = params
    hidden = td.dropout((x @ w1 + b1).relu(), dropout)
    loss = td.cross_entropy(hidden @ w2 + b2, y)
    loss.backward()
    with td.no_grad():
        for p in params:
            p -= lr * p.grad
            p.grad = None
    return loss


def batches(sizes):
    rng = np.random.default_rng(1)
    return [(td.tensor(rng.normal(size=(n, 6)).astype(np.float32)), td.tensor(rng.integers(0, 3, n))) for n in sizes]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_twenty_training_steps_agree(dropout):
    eager, compiled = parameters(), parameters()
    step = td.compile(train_step)
    td.manual_seed(3)
    expected = [train_step(eager, x, y, dropout=dropout).item() for x, y in batches([8] * 20)]
    td.manual_seed(3)
    actual = [step(compiled, x, y, dropout=dropout).item() for x, y in batches([8] * 20)]
    np.testing.assert_allclose(actual, expected, rtol=1e-4)
    for a, e in zip(compiled, eager, strict=True):
        np.testing.assert_allclose(a.detach().numpy(), e.detach().numpy(), rtol=1e-3, atol=1e-5)
    assert 1 == step._programs.num_programs


def test_new_batch_sizes_and_new_numbers_need_no_new_program():
    compiled, eager = parameters(), parameters()
    step = td.compile(train_step)
    for i, (x, y) in enumerate(batches([8, 5, 7, 2, 30, 8, 11])):
        a, e = step(compiled, x, y, lr=0.1 / (i + 1)), train_step(eager, x, y, lr=0.1 / (i + 1))
        np.testing.assert_allclose(a.item(), e.item(), rtol=1e-4)
    assert 1 == step._programs.num_programs


def test_other_new_sizes_need_one_more_program():
    step = td.compile(lambda x: (x * 2).softmax(-1).sum(0))
    for n, k in ((3, 4), (5, 4), (5, 7), (2, 9), (8, 3)):
        x = td.sin(td.arange(float(n * k))).reshape(n, k)
        np.testing.assert_allclose(step(x).numpy(), (x * 2).softmax(-1).sum(0).numpy(), rtol=1e-5)
    assert 2 == step._programs.num_programs


def test_a_new_batch_size_needs_no_new_program():
    model = td.nn.Linear(3, 2)
    step = td.compile(lambda x: model(x).relu().sum())
    for n in (4, 5, 64, 4):
        x = td.sin(td.arange(3.0 * n)).reshape(n, 3)
        assert abs(step(x).item() - model(x).relu().sum().item()) < 1e-4
    assert step._programs.num_programs == 1
    assert "[*, 3]" in step.explain()


@pytest.mark.parametrize("size", [1, 0])
def test_sizes_one_and_zero(size):
    f = td.compile(lambda x: (x.exp() * 2).sum(axis=0))
    for n in (3, size, 4):
        x = td.ones(n, 2)
        np.testing.assert_allclose(f(x).numpy(), (np.exp(np.ones((n, 2))) * 2).sum(0), rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_views_without_elements():
    def f(x):
        x = x.detach().requires_grad_()
        y = (x * 2).view(3, 0, 1, 3)
        y.exp().sum().backward()
        return y, x.grad

    for x in (td.randn(3, 0, 3), td.randn(3, 0, 1, 3)):
        y, g = td.compile(f)(x)
        assert y.shape == (3, 0, 1, 3) and g.shape == x.shape


def test_branches_on_values_follow_the_data():
    def f(x):
        return x * 2 if x.sum() > 0 else x - 1

    compiled = td.compile(f)
    for sign in (1, -1, 1, -1):
        x = td.ones(4) * sign
        assert f(x).tolist() == compiled(x).tolist()
    assert 3 == compiled._programs.num_programs  # the condition, and either branch


def test_loops_on_values_end():
    def newton(a):
        x = a
        while abs((x * x - a).item()) > 1e-5:
            x = (x + a / x) / 2
        return x

    assert abs(td.compile(newton)(td.tensor(2.0, dtype=td.float64)).item() - 2**0.5) < 1e-5


def test_whole_refuses_to_read_values():
    f = td.compile(lambda x: x * 2 if x.sum() > 0 else x, whole=True)
    with pytest.raises(td.TandemError, match="whole=True"):
        f(td.ones(3) * 1)
    assert [2.0, 2.0] == td.compile(lambda x: x * 2, whole=True)(td.ones(2)).tolist()


def looped(y):
    while y.sum() < 100:
        y = y * 2
    return y


def asserted(y):
    assert (y > 0).all(), "positive"


def counted(y):
    for _ in range(int(y.sum())):
        y = y + 1
    return y


@pytest.mark.parametrize(
    ("read", "fix"),
    [
        (looped, "td.while_loop"),
        (asserted, "when the function has returned"),
        (counted, "td.fori_loop"),
        (lambda y: 1 if (y.sum() > 3) else y, "td.cond"),
        (lambda y: y.sum() > 3 and y, "& and |"),
        (lambda y: y.sum().item() + 1, "keep it as a tensor"),
        (lambda y: np.asarray(y), "keep it as a tensor"),
        (lambda y: print(y), "td.print"),
        (lambda y: f"{y.sum():.2f}", "td.print"),
        (lambda y: y[y > 1] * 2, "td.where"),
        (lambda y: td.nonzero(y), "nonzero_static"),
        (lambda y: max(y.sum(), y.prod()), "td.maximum"),
        (eval("lambda y: float(y.sum())"), "td.cond or td.where instead of `if`, repeat by td.while_loop"),
    ],
)
def test_whole_says_what_to_write_instead(read, fix):
    with pytest.raises(td.ValueRangeError, match="whole=True") as info:
        td.compile(lambda x: read(x * 2), whole=True)(td.ones(3))
    assert fix in info.value.fix and info.value.fix.endswith(", or leave out whole=True")


def test_whole_is_about_reading_not_about_writes_through_views():
    def through_views(x):
        y = x * 2
        x[0].add_(1)
        y[1:].mul_(3)
        return x * 2 + y

    def by_masks(x):
        y = x * 2
        y[y > 1] = 3
        y[td.tensor([0])] = 5
        return y + 1

    for fn, programs in ((through_views, 3), (by_masks, 1)):
        compiled = td.compile(fn, whole=True)
        assert compiled(td.ones(3)).tolist() == fn(td.ones(3)).tolist() and compiled._programs.num_programs == programs


def test_what_the_function_looks_at_is_never_stale():
    class Model:
        scale = td.tensor(2.0)
        training = True

    model = Model()
    f = td.compile(lambda x: x * model.scale + (1 if model.training else 0))
    assert 3.0 == f(td.tensor(1.0)).item()
    model.scale = td.tensor(5.0)
    assert 6.0 == f(td.tensor(1.0)).item()
    model.training = False
    assert 5.0 == f(td.tensor(1.0)).item()


def test_an_exception_leaves_nothing_broken():
    x = td.zeros(3)

    def f(fail):
        x.add_(1)
        y = x * 2
        if fail:
            raise KeyError("stop")
        return y

    compiled = td.compile(f)
    assert [2.0] * 3 == compiled(False).tolist()
    with pytest.raises(KeyError):
        compiled(True)
    assert [2.0] * 3 == x.tolist()  # what came before the exception has happened, as eagerly
    assert [6.0] * 3 == compiled(False).tolist()


def test_errors_are_the_same_as_eagerly():
    def f(x):
        return x @ td.ones(4, 2)

    with pytest.raises(td.ShapeError) as eager:
        f(td.ones(2, 3))
    with pytest.raises(td.ShapeError) as compiled:
        td.compile(f)(td.ones(2, 3))
    assert str(eager.value) == str(compiled.value)


@pytest.mark.parametrize(
    "look_up",
    [
        lambda x, i: x[i],
        lambda x, i: td.take(x, i, axis=0),
        lambda x, i: td.nn.functional.embedding(i, x),
        lambda x, i: td.index_select(x, 0, i),
    ],
)
def test_an_index_error_names_the_operator_and_the_inner_line(look_up):
    def inner(x, i):
        y = look_up(x * 2, i)
        return y + 1

    def message(f):
        with pytest.raises(td.IndexRangeError) as error:
            f(td.ones(4, 3), td.tensor([0, 7]))
        return str(error.value)

    eager = message(inner)
    assert "index 7 is out of range for axis 0 with size 4" in eager
    assert message(td.compile(inner)) == eager


def test_views_and_writes_through_them():
    def f(x):
        y = x * 1
        row = y[1]
        y += 1  # row sees it
        row *= 10  # y sees it
        y[0, 0] = 7
        return y, row + 0, y.T.contiguous()

    x = td.arange(6, dtype=td.float32).reshape(2, 3)
    for a, e in zip(td.compile(f)(x), f(x), strict=True):
        assert e.tolist() == a.tolist()


def test_inputs_written_in_place_and_views_of_them():
    def f(w):
        t = w.T
        w += 1
        return t + 0

    eager, compiled = td.arange(4).reshape(2, 2), td.arange(4).reshape(2, 2)
    assert f(eager).tolist() == td.compile(f)(compiled).tolist()
    assert eager.tolist() == compiled.tolist()


def test_results_can_be_kept_differentiated_and_printed():
    w = td.tensor([1.0, 2.0], requires_grad=True)
    f = td.compile(lambda x: (x * w).exp())
    y = f(td.ones(2))
    assert "tensor" in repr(y)
    y.sum().backward()  # outside: the saved values are there
    np.testing.assert_allclose(w.grad.numpy(), np.exp([1.0, 2.0]), rtol=1e-6)


def test_compiled_functions_nest_and_work_as_methods():
    class Model:
        @td.compile
        def forward(self, x):
            return x * 2

    inner = td.compile(lambda x: x + 1)
    outer = td.compile(lambda x: inner(x) * 3)
    assert 6.0 == outer(td.tensor(1.0)).item()
    assert 4.0 == Model().forward(td.tensor(2.0)).item()


class Scaled(td.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = td.nn.Linear(2, 2)
        self.forward = td.compile(self.forward)

    def forward(self, x):
        return self.inner(x)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
def test_a_compiled_bound_method_goes_with_the_copied_object(duplicate):
    net = Scaled()
    other = duplicate(net)
    assert other.forward.__wrapped__.__self__ is other
    with td.no_grad():
        for p in other.parameters():
            p.zero_()
    assert other(td.ones(1, 2)).tolist() == [[0, 0]] and net(td.ones(1, 2)).abs().sum() > 0
    alone = copy.deepcopy(net.forward)
    assert alone.__wrapped__.__self__ is not net and copy.copy(net.forward).__wrapped__.__self__ is net
    double = td.compile(lambda x: x * 2)
    assert copy.deepcopy(double)(td.ones(1)).tolist() == [2] and copy.deepcopy(td.compile(td.exp))(td.zeros(1)) == 1


@td.compile
def tripled(x, times=3, *, plus=0):
    """Three times x."""
    return x * times + plus


def plain(x):
    return x + 1


def test_compiled_functions_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(tripled)) is tripled and copy.deepcopy(tripled)(td.ones(1)).tolist() == [3]
    assert pickle.loads(pickle.dumps(td.compile(plain)))(td.ones(1)).tolist() == [2]
    with pytest.raises(
        td.UnsupportedError, match=r"<lambda> cannot be pickled: functions are pickled by name(.|\n)*fix: "
    ):
        pickle.dumps(td.compile(lambda x: x))


def test_compiled_functions_and_methods_look_like_what_they_are_made_of():
    assert tripled.__name__ == "tripled" and tripled.__doc__ == "Three times x."
    assert tripled.__defaults__ == (3,) and tripled.__kwdefaults__ == {"plus": 0}
    assert str(inspect.signature(tripled)) == "(x, times=3, *, plus=0)"

    class Model:
        @td.compile
        def run(self, x, times=2):
            return x * times

    model = Model()
    assert model.run(td.ones(3)).tolist() == [2, 2, 2]
    assert model.run.explain().startswith("run: 1 sequences") and model.run.memory()["outputs"] == 12
    assert len(model.run.graph().outputs) == 1
    assert model.run.__self__ is model and model.run.__name__ == "run" and model.run == model.run
    assert model.run.__defaults__ == (2,) and model.run.__wrapped__ is Model.run.__wrapped__
    assert str(inspect.signature(model.run)) == "(x, times=2)" and inspect.ismethod(model.run)
    assert copy.deepcopy(model.run).__self__ is not model


def test_second_derivatives_inside():
    f = td.compile(td.grad(td.grad(lambda x: x**3 * 2)))
    assert 24.0 == f(td.tensor(2.0)).item()


def test_several_threads():
    f = td.compile(lambda x: (x * 2).softmax(-1).sum(0))
    errors = []

    def work(n):
        try:
            for _ in range(10):
                np.testing.assert_allclose(f(td.ones(n, 4)).numpy(), np.full(4, n / 4), rtol=1e-5)
        except Exception as e:
            errors.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in (2, 3, 5)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_eager_switch_runs_plain_python():
    f = td.compile(lambda x: x * 2)
    with td.switches(EAGER=1):
        assert [2.0] == f(td.ones(1)).tolist()
    assert 0 == f._programs.num_programs


def test_explain_and_graph_tell_what_was_made():
    f = td.compile(lambda x: x * 2 + 1)
    f(td.ones(3))
    assert "1 programs" in f.explain()
    assert "mul" in str(f.graph())


def test_every_way_to_read_elements_waits_for_them():
    def f(x):
        y = x * 2
        z = x + 1
        return [
            y.tolist(), y.sum().item(), float(y[0]), int(z[1]), bool(z[0]), np.asarray(z * 1).tolist(), memoryview(y * 1).tolist(),
            np.from_dlpack(z * 3).tolist(), td.tensor([y[0], z[1]]).tolist(), repr(z), y.data_ptr() != 0, (y * 1).numpy().tolist(),
            3.0 in y, [v.item() for v in z], list(range(int(z[1]))), td.from_dlpack(y * 5, copy=True).tolist(),
        ]  # fmt: skip

    x = td.tensor([1.0, 2.0, 3.0])
    assert f(x) == td.compile(f)(x)


def test_print_shows_values_of_the_moment_and_ends_no_program(capsys):
    w = td.zeros(2)

    @td.compile
    def f(x):
        td.print("before", w, sep=": ")
        w.add_(x)
        td.print("after", w, 3, end="!\n")
        return w * 2

    for _ in range(2):
        f(td.ones(2))
    expected = (
        "before: tensor([0., 0.])\nafter tensor([1., 1.]) 3!\nbefore: tensor([1., 1.])\nafter tensor([2., 2.]) 3!\n"
    )
    assert capsys.readouterr().out == expected
    assert f._programs.num_programs == 1
    td.print("eagerly", w)
    assert capsys.readouterr().out == "eagerly tensor([2., 2.])\n"


def test_print_copies_containers_at_the_call(capsys):
    def f(x):
        y, point = x * 2, Point(x, 1)
        kept = [y, {"a": (y, 3)}]
        td.print(kept, point)
        y.add_(1)
        kept[1]["a"] = kept.append(5)
        x.zero_()
        return y

    f(td.ones(1))
    expected = capsys.readouterr().out
    td.compile(f)(td.ones(1))
    assert (
        capsys.readouterr().out == expected == "[tensor([2.]), {'a': (tensor([2.]), 3)}] Point(x=tensor([1.]), n=1)\n"
    )


def test_print_of_a_list_that_holds_itself(capsys):
    @td.compile
    def f(x):
        kept = [x * 2]
        kept.append(kept)
        td.print(kept)
        return x + 1

    f(td.ones(2))
    assert capsys.readouterr().out == "[tensor([2., 2.]), [...]]\n"


def test_print_before_an_error_of_the_program_is_not_lost(capsys):
    def f(x):
        y = x * 2
        td.print("before", y)
        z = td.linalg.cholesky(td.eye(2) * y)
        td.print("after", z)
        td.print("after")
        return z

    with pytest.raises(td.LinAlgError):
        f(-td.ones(2))
    expected = capsys.readouterr().out
    assert "before" in expected
    fn = td.compile(f)
    for _ in range(2):
        with pytest.raises(td.LinAlgError):
            fn(-td.ones(2))
        assert capsys.readouterr().out == expected


def test_print_of_a_program_that_has_ended_comes_before_what_is_printed_next(capsys):
    seen = []

    @td.compile
    def f(x):
        for i in range(2):
            x = x * 2
            td.print("line", i, x)
            assert float(x.sum()) > 0
            td.print("and", i)
            seen.append(capsys.readouterr().out)
        return x

    f(td.ones(1))
    assert seen == ["line 0 tensor([2.])\n", "and 0\nline 1 tensor([4.])\n"]
    assert capsys.readouterr().out == "and 1\n"


@pytest.mark.parametrize("name", ["scan", "cond", "vmap"])
def test_print_in_a_function_that_is_only_taken_down_names_its_line(name):
    def body(c, x):
        td.print("c", c)
        return c + x, c

    call = {
        "scan": td.compile(lambda x: td.scan(body, td.zeros(()), x)),
        "cond": td.compile(lambda x: td.cond(x.sum() > 0, lambda: body(x, x), lambda: body(x, x))),
        "vmap": lambda x: td.vmap(body)(x, x),
    }[name]
    with pytest.raises(td.UnsupportedError, match=f"print: a function given to td.{name} is only traced") as info:
        call(td.ones(3))
    assert info.value.source.line == body.__code__.co_firstlineno + 1 and f"td.{name} gives" in info.value.fix


def test_print_in_a_deferred_graph_says_what_to_use():
    with td.Graph().as_default():
        x = td.placeholder(td.float32, [2])
        with pytest.raises(td.UnsupportedError, match=r"td\.Print"):
            td.print(x)


def test_sizes_of_one_among_the_arguments_are_broadcast_whatever_the_others_are():
    f = td.compile(lambda x: td.expand(td.reshape(x, (*x.shape, 1)), (*x.shape, 3)) * 1.0)
    for n, m in ((2, 2), (4, 3), (3, 5), (1, 4), (5, 1)):
        x = td.arange(float(n * m)).reshape(n, m)
        np.testing.assert_array_equal(f(x).numpy(), np.broadcast_to(x.numpy()[..., None], (n, m, 3)))
    g = td.compile(lambda x, k: td.reshape(x, (2, k, 6 // k)) + td.zeros(2, 2, 6 // k))
    for k in (2, 1):
        x = td.arange(12.0)
        np.testing.assert_array_equal(g(x, k).numpy(), x.numpy().reshape(2, k, -1) + np.zeros((2, 2, 6 // k)))


def test_a_compiled_module_is_a_module():
    model = td.nn.Sequential(td.nn.Linear(3, 4), td.nn.ReLU(), td.nn.Dropout(0.5), td.nn.Linear(4, 2))
    fast = td.compile(model)
    x = td.randn(5, 3)
    assert isinstance(fast, td.nn.Sequential) and list(fast.state_dict()) == list(model.state_dict())
    assert fast[0].weight is model[0].weight and repr(fast) == repr(model)
    fast.eval()
    np.testing.assert_allclose(fast(x).detach().numpy(), model.eval()(x).detach().numpy(), rtol=1e-5, atol=1e-6)
    assert fast.explain().startswith("Sequential: 1 ") and fast.memory()["peak"] > 0
    fast(x).sum().backward()
    assert model[0].weight.grad is not None

    class Outer(td.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = fast

        def forward(self, x):
            return self.inner(x)

    assert [n for n, _ in Outer().named_parameters()] == [
        "inner.0.weight",
        "inner.0.bias",
        "inner.3.weight",
        "inner.3.bias",
    ]
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        np.testing.assert_allclose(other(x).detach().numpy(), fast(x).detach().numpy(), rtol=1e-5, atol=1e-6)
        assert other[0].weight is not fast[0].weight
    same = td.nn.Linear(3, 2)
    assert same.compile() is None and "programs" in same.explain()
    np.testing.assert_allclose(
        same(x).detach().numpy(), (x @ same.weight.T + same.bias).detach().numpy(), rtol=1e-5, atol=1e-6
    )
