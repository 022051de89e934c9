"""What is easily different when operators are only captured: where errors come from, what they leave, who shares memory."""

import copy
import pickle
import threading

import numpy as np
import pytest

import tandem as td
from tandem import nn


def text_of(fn, *args):
    with pytest.raises(td.TandemError) as caught:
        fn(*args)
    return str(caught.value)


def test_attributes_of_the_module_itself_are_seen_by_its_compiled_twin():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.scale = nn.Linear(3, 3), 2.0
            self.register_buffer("shift", td.zeros(3))

        def forward(self, x):
            return (self.linear(x) + self.shift) * self.scale if self.training else x

    module = Scaled()
    compiled, x = td.compile(module), td.rand(2, 3)

    def agree():
        np.testing.assert_allclose(compiled(x).tolist(), module(x).tolist(), rtol=1e-4)

    agree()
    module.scale = 5.0
    agree()
    module.linear = nn.Linear(3, 3)
    agree()
    module.shift = td.ones(3)
    agree()
    module.eval()
    assert not compiled.training
    agree()
    compiled.train()
    assert module.training
    compiled.extra = nn.Linear(1, 1)
    assert "extra.weight" in module.state_dict()
    for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(td.compile(nn.Linear(3, 3))))):
        other.weight = nn.Parameter(td.zeros(3))
        assert other.explain()
    assert "weight" not in dict(module.named_parameters())


def test_index_errors_come_from_the_very_line_and_can_be_caught_there():
    table = nn.Sequential(nn.Sequential(nn.Embedding(5, 3)))

    def lookup(i, first):
        if first:
            return table(i) * 2
        return table(i) * 2

    compiled = td.compile(lookup)
    bad = td.tensor([9])
    for first in (True, False):
        assert text_of(compiled, bad, first) == text_of(lookup, bad, first)
    assert "Sequential.0.0" in text_of(compiled, bad, True)

    @td.compile
    def careful(x):
        try:
            return x[td.tensor([7])]
        except IndexError:
            return x - 1

    assert careful(td.ones(3)).tolist() == [0, 0, 0]


@pytest.mark.parametrize("wrap", [lambda f: f, td.compile], ids=["eager", "compiled"])
def test_an_error_of_values_leaves_what_came_before_it(wrap):
    count, seen = td.zeros(2), []

    @wrap
    def step(x, table):
        count.add_(1)
        seen.append(count * 2)
        kept = seen[-1] + 1
        kept.mul_(3)
        y = table[(x * 10).to(td.int64)]  # indices are computed: checked when the program runs
        kept.mul_(100)
        count.add_(10)
        return y, kept

    step(td.tensor([0.1]), td.ones(5))
    with pytest.raises(IndexError, match=r"index 20 is out of range.*\n.*test_same_as_eager.py"):
        step(td.tensor([2.0]), td.ones(5))
    assert seen[0].tolist() == [2, 2] and seen[1].tolist() == [24, 24]
    assert count.tolist() == [12, 12]


def test_the_line_of_an_error_is_the_one_that_runs():
    def choose(x, table, first):
        i = (x * 10).to(td.int64)
        table.add_(0)
        if first:
            return table[i]
        return table[i]

    compiled = td.compile(choose)
    x = td.tensor([2.0])
    for first in (True, False):
        assert text_of(compiled, x, td.ones(5), first) == text_of(choose, x, td.ones(5), first)


@pytest.mark.parametrize("wrap", [lambda f: f, td.compile], ids=["eager", "compiled"])
def test_tensors_of_one_numpy_array_share_it(wrap):
    array = np.zeros(4, np.float32)
    x, y = td.from_numpy(array), td.from_numpy(array[1:])
    z = td.from_dlpack(x)

    @wrap
    def f(x, y, z):
        x.add_(1)
        r = y * 2
        z.add_(1)
        s = x + 0
        y.mul_(2)
        return r, s, x + z

    r, s, t = f(x, y, z)
    assert r.tolist() == [2, 2, 2] and s.tolist() == [2, 2, 2, 2] and t.tolist() == [4, 8, 8, 8]
    assert array.tolist() == [2, 4, 4, 4]


def test_explain_says_why_each_program_exists_and_where_it_ends():
    @td.compile
    def f(x):
        y = x.sum()
        if y > 3:
            return x * 2
        return x + 1

    f(td.ones(4, 3))
    f(-td.ones(4, 3))
    f(-td.ones(4, 5))
    text = f.explain()
    assert "ends where a value is read at test_same_as_eager.py:" in text
    assert "ends where the function returns" in text
    assert "with sizes [4, 5] instead of [4, 3]" in text
    assert "no other begins with add (test_same_as_eager.py:" in text
    assert "program 0: 2 calls" in text and "; ran 2 times" in text
    with pytest.raises(td.ValueRangeError, match="there is no program 77"):
        f.graph(77)
    nothing = td.compile(lambda x: x)
    nothing(td.ones(2))
    with pytest.raises(td.ValueRangeError, match="no program was compiled so far"):
        nothing.graph()


@pytest.mark.parametrize(
    ("fn", "values", "why"),
    [
        (lambda x, k: td.dropout(x, k), (0.5, 0.48), "dropout ({place}) got p=0.48, was 0.5"),
        (lambda x, k: td.layer_norm(x, 4, eps=k), (0.1, 0.2), "layer_norm ({place}) got eps=0.2, was 0.1"),
        (lambda x, k: x**k, (3, 4), "power ({place}) got exponent=4, was 3"),
        (lambda x, k: x.split(k, 1)[0] + 1, (2, 1), "split_sizes ({place}) got sizes=(1, 1, 1, 1), was (2, 2)"),
        (lambda x, k: x.sum(k), (0, 1), "sum ({place}) got axis=1, was 0"),
        (lambda x, k: x + k, (1, 2.5), "add ({place}) got y=<a float>, was <an int>"),
        (lambda x, k: x.to(k) * 2, (td.float64, td.float16), "converted ({place}) got dtype=tandem.float16, was tandem.float64"),
        (lambda x, k: k.exp(), (td.ones(2), td.ones(2, dtype=td.float64)), "exp ({place}) got x=<float64, 1 axes>, was <float32"),
    ],
)  # fmt: skip
def test_explain_says_which_argument_is_another_one(fn, values, why):
    compiled = td.compile(fn)
    for value in values:
        compiled(td.ones(4, 4), value)
    place = f"test_same_as_eager.py:{fn.__code__.co_firstlineno}"
    assert f"why: the operators of program 0, but {why.format(place=place)}" in compiled.explain()


def test_reports_are_as_bounded_as_programs():
    @td.compile
    def f(x, n):
        for i in range(n):
            x = x * 2 if i % 2 else x + x
        return x

    with td.switches(skip="all"):
        for n in range(1, 5):
            f(td.ones(2), n)
    assert len(f._report) == 4
    f._programs.clear()
    assert len(f._report) == 0 and "started over 1 times" in f.explain()


def test_switches_may_be_written_small():
    f = td.compile(lambda x: x + 1)
    with td.switches(eager=True):
        f(td.ones(2))
    assert f._programs.num_programs == 0
    with pytest.raises(ValueError, match="no switch 'eagre'"):
        td.switches(eagre=True)


@pytest.mark.parametrize("wrap", [lambda f: f, td.compile], ids=["eager", "compiled"])
def test_a_view_is_written_with_what_it_shows_the_other_way_round(wrap):
    whole = td.arange(6.0)

    @wrap
    def turn():
        first = whole[0] * 1.0
        part = whole[1:].detach()
        part.copy_(part.flip(0))
        return first, part * 1.0

    assert turn()[1].tolist() == [5, 4, 3, 2, 1] and whole.tolist() == [0, 5, 4, 3, 2, 1]


@pytest.mark.parametrize("wrap", [lambda f: f, td.compile], ids=["eager", "compiled"])
def test_an_index_whose_value_is_there_gives_a_view(wrap):
    table = td.arange(6.0).reshape(3, 2)

    @wrap
    def f(i):
        row = table[i]
        table.mul_(2)
        return row + 0, row

    assert f(td.tensor(2))[0].tolist() == [8, 10]
    row = f(td.tensor(1))[1]
    table.zero_()
    assert row.tolist() == [0, 0]


def _written_index():
    w, at, table = td.zeros(4), td.zeros(1, dtype=td.int64), td.arange(5.0)

    def fn(bad):
        w.add_(1)
        at.add_(7 if bad else 1)
        row = table[at]
        w.mul_(2)
        return row

    return fn, [w, at]


def _written_twice():
    w, at, table = td.zeros(4), td.zeros(1, dtype=td.int64), td.arange(5.0)

    def fn(bad):
        at.add_(2 if bad else 1)
        w.add_(table[at])
        at.add_(1)
        w.add_(table[at * 2])
        return w.sum()

    return fn, [w, at]


def _written_matrix():
    matrix, v = td.eye(3) * 2, td.ones(3)

    def fn(bad):
        v.add_(1)
        matrix.add_(-5.0 if bad else 0.0)
        v.mul_(td.linalg.cholesky(matrix)[0, 0])
        return v.sum()

    return fn, [matrix, v]


def _written_index_of_a_write():
    rows, at = td.zeros(5, 3), td.zeros(3, dtype=td.int64)

    def fn(bad):
        at.copy_(td.tensor([1, 9 if bad else 2, 0]))
        rows.add_(5)
        rows.index_add_(0, at, td.ones(3, 3))
        return rows.sum()

    return fn, [rows, at]


def _trained_model():
    td.manual_seed(0)
    linear, table = nn.Linear(4, 4), nn.Embedding(6, 4)
    optimizer = td.optim.Adam([*linear.parameters(), *table.parameters()], lr=0.1)

    def fn(bad):
        optimizer.zero_grad()
        (linear(table(td.tensor([1, 2]))) - 1).pow(2).mean().backward()
        optimizer.step()
        index = (linear.weight.detach().abs().sum() * 0).to(td.int64) + (9 if bad else 2)
        return table(index.reshape(1))

    return fn, [*linear.parameters(), *table.parameters()]


def _written_loop():
    s, table = td.zeros(3), td.arange(5.0)

    def fn(bad):
        s.add_(1)
        total = td.while_loop(lambda i, a: i < (9 if bad else 3), lambda i, a: (i + 1, a + table[i] * s.sum()),
                              (td.tensor(0), td.tensor(0.0)))  # fmt: skip
        s.mul_(2)
        return total[1]

    return fn, [s]


def _written_weights():
    s = td.zeros(2)

    def fn(bad):
        s.add_(1)
        drawn = td.multinomial(s * 0 + (-1.0 if bad else 0.5), 1)
        s.mul_(2)
        return drawn * 0

    return fn, [s]


@pytest.mark.parametrize("make", [
    _written_index, _written_twice, _written_matrix, _written_index_of_a_write, _trained_model, _written_loop, _written_weights,
])  # fmt: skip
def test_a_failure_that_depends_on_what_was_written_leaves_what_eager_code_leaves(make):
    """Such a program has written nothing when it fails: its calls run again eagerly, and fail where eager code fails."""
    found = []
    for compiled in (False, True):
        fn, state = make()
        call = td.compile(fn) if compiled else fn
        call(False)
        found.append((text_of(call, True), [t.detach().numpy().copy() for t in state]))
    (message, state), (got, left) = found
    assert message == got
    for a, b in zip(state, left, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_run_that_fails_leaves_variables_as_they_were():
    with td.Graph() as graph:
        step, table = td.placeholder(td.int64, []), td.Variable(td.arange(5.0))
        at, total = td.Variable(td.zeros(1, dtype=td.int64)), td.Variable(td.zeros(1))
        moved = at.assign_add(step.reshape(1))
        added = total.assign_add(td.take(table, moved))
        with td.Session(graph) as session:
            session.run(td.global_variables_initializer())
            session.run([moved, added], {step: 3})
            with pytest.raises(IndexError, match="index 9 is out of range"):
                session.run([moved, added], {step: 6})
            assert session.run(at).tolist() == [3] and session.run(total).tolist() == [3.0]


@pytest.mark.parametrize("fn", [
    lambda x, i: (x[i * 2], x + 1)[1],
    lambda x, i: [x[i * 2] for _ in range(2)] and None,
    lambda x, i: td.concat([nn.functional.embedding(i * 2, x.reshape(4, 1)), x.reshape(4, 1)])[2:],
    lambda x, i: (td.multinomial(x - 5, 1), x)[1],
])  # fmt: skip
def test_what_nobody_reads_is_checked_all_the_same(fn):
    x, i = td.arange(4.0), td.tensor([1, 3])
    compiled = td.compile(fn)
    assert text_of(compiled, x, i) == text_of(fn, x, i)
    assert text_of(compiled, x, i) == text_of(fn, x, i)


def test_an_error_of_a_program_names_the_module_as_eager_code_does():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.shift = nn.Linear(2, 2)
            self.inner = nn.Sequential(nn.Embedding(5, 2), nn.Tanh())
            self.last = nn.Linear(2, 1)

        def forward(self, i, read):
            y = self.last(self.shift(self.inner(i * 2)))  # what the program computes is checked when it runs
            return y * 2 if not read or y.sum() > 0 else y

    net = Net()
    i = td.tensor([1, 3])
    for read in (
        False,
        True,
    ):  # at the end of the function, and in the middle, in another module than the one that failed
        outer = lambda i, read=read: nn.Identity()(net(i, read))
        message = text_of(outer, i)
        assert message.startswith("Net.inner.0: embedding: index 6 is out of range") and "in Embedding(5, 2)" in message
        assert text_of(td.compile(outer), i) == text_of(td.compile(net), i, read) == message
    plain = lambda i: (net.shift(td.ones(1, 2)), td.arange(5.0)[i * 2])
    assert text_of(td.compile(plain), i) == text_of(plain, i)  # in no module at all


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x * 2).unsqueeze_(0) + 1,
        lambda x: (x * 2).unsqueeze(0).squeeze_(0),
        lambda x: (x * 2).t_() @ x,
        lambda x: (x * 2).transpose_(0, 1),
        lambda x: (x * 2).swapaxes_(0, 1),
        lambda x: (x * 2).swapdims_(0, 1),
        lambda x: (x * 2).as_strided_((2, 2), (1, 1)),
        lambda x: x.t_() + 1,
        lambda x: x.t_().add_(1),
        lambda x: td.scan(lambda c, row: ((c + row).unsqueeze_(0).squeeze_(0), row.unsqueeze_(0)), td.zeros(3), x)[1],
    ],
)
def test_axes_changed_in_place(fn):
    x, y = (td.arange(9.0).reshape(3, 3).clone() for _ in range(2))
    expected, actual = fn(x), td.compile(fn)(y)
    assert actual.tolist() == expected.tolist() and y.tolist() == x.tolist()


def test_a_tensor_whose_axes_changed_in_place_can_be_read_and_written():
    def f(x):
        y = x * 2
        line = y.view(-1)
        y.t_()
        before = y.tolist()
        y.mul_(2)
        y.unsqueeze_(0)
        y.add_(y.sum())
        return before, y, line

    (a, b, c), (d, e, g) = f(td.arange(6.0).reshape(2, 3)), td.compile(f)(td.arange(6.0).reshape(2, 3))
    assert a == d and b.tolist() == e.tolist() and c.tolist() == g.tolist()


# -- what docs/compile.md says is not as eagerly


def test_try_around_an_operator_catches_its_error_of_values_where_a_value_is_read_inside():
    def tried(read):
        def f(x):
            try:
                made = td.linalg.cholesky(x * 2)
                if read:
                    made[0, 0].item()
                return made
            except td.LinAlgError:
                return td.zeros(2)

        return td.compile(f)

    assert tried(read=True)(-td.eye(2)).tolist() == [0, 0]
    with pytest.raises(td.LinAlgError):
        tried(read=False)(-td.eye(2))


def read_in_another_thread(x, read):
    y, found = x * 2, []
    if read:
        y.tolist()

    def work():
        try:
            found.append((y + 1).tolist())
        except td.ValueRangeError as error:
            found.append(error.rule)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.slow  # the other thread waits for a minute
def test_a_value_without_memory_in_another_thread():
    assert "still runs in another thread" in td.compile(read_in_another_thread)(td.ones(1), read=False)


def test_threads_and_arrays_in_the_middle_of_a_function():
    assert td.compile(read_in_another_thread)(td.ones(1), read=True) == [3]

    def g(x):
        array = x.numpy()
        x.add_(1)
        return array.tolist(), x.numpy().tolist()

    assert td.compile(g)(td.ones(1)) == ([1], [2])
