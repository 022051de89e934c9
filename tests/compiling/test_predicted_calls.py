"""Calls that are compared with those of the last time instead of being worked out: Note [Predicted calls]."""

import threading

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.nn import functional as F


def predicted(fn) -> int:
    return fn._programs.num_predicted


def check_same(make, calls, least: int):
    """make() gives a function and what is to be compared after each call of it; calls: arguments. Eager = compiled, and at least
    so many of the calls were predicted."""
    results = []
    for wrap in (lambda f: f, td.compile(recompile_limit=100)):
        td.manual_seed(0)
        fn, state = make()
        fn = wrap(fn)
        found = []
        for arguments in calls:
            made = fn(*arguments() if callable(arguments) else arguments)
            found.append([np.array(t.detach()) for t in td.tree.leaves((made, state()))])
        results.append(found)
    for number, (eager, compiled) in enumerate(zip(*results, strict=True)):
        for a, b in zip(eager, compiled, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-5, atol=1e-6, err_msg=f"call {number}")
    assert predicted(fn) >= least


def training():
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
    optimizer = td.optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return step, lambda: [*model.parameters(), *(p.grad for p in model.parameters())]


def batch(n: int):
    return td.arange(n * 6).reshape(n, 6) / 10 - 1, td.arange(n) % 3


def test_a_training_step_is_predicted_from_the_third_call_on():
    check_same(training, [batch(4)] * 6, least=4)


def test_sizes_that_come_again_are_predicted():
    check_same(training, [batch(n) for n in (4, 5) * 8], least=8)


def test_two_arguments_that_become_one_tensor():
    x, y = td.ones(3), td.arange(3) * 2.0
    check_same(lambda: (lambda a, b: a * 2 + b, list), [(x, y)] * 4 + [(x, x)] * 4 + [(x, y)] * 2, least=2)


def test_a_write_to_one_of_two_arguments_that_become_one_tensor():
    def make():
        x, y = td.ones(3), td.arange(3) * 2.0
        arguments = iter([(x, y)] * 4 + [(x, x)] * 3 + [(x, y)] * 3)

        def f(number):
            a, b = next(arguments)
            a += 1
            return b * 2

        return f, lambda: (x, y)

    check_same(make, [(n,) for n in range(10)], least=2)


def test_memory_of_somebody_else_that_overlaps_what_is_written():
    def make():
        array = np.arange(8, dtype=np.float32)
        apart, whole, part = td.from_numpy(np.ones(4, np.float32)), td.from_numpy(array), td.from_numpy(array[2:6])
        arguments = iter([apart] * 4 + [part] * 3 + [apart] * 3)

        def f(number):
            other = next(arguments)
            y = other * 2
            whole.add_(1)
            return y + other

        return f, lambda: (whole, part)

    check_same(make, [(n,) for n in range(10)], least=2)


@pytest.mark.parametrize("change", ["static", "list", "number", "extra", "fewer", "order", "grad", "dtype", "view"])
def test_a_call_that_is_another_one(change):
    def make():
        w = td.ones(4, requires_grad=True)
        axes = [0]

        def f(x, changed):
            if change == "list":
                axes[:] = [1] if changed else [0]
            y = x * w
            if change == "extra" and changed:
                y = y + 3
            z = F.softmax(y, 1 if change == "static" and changed else 0)
            z = z.sum(axes, keepdim=True) if change == "list" else z
            z = z * (5.0 if change == "number" and changed else 2.0)
            if change == "order" and changed:
                z = td.tanh(td.exp(z))
            else:
                z = td.exp(td.tanh(z))
            if not (change == "fewer" and changed):
                z = z - 1
            with td.no_grad() if change == "grad" and changed else td.enable_grad():
                z = z * w
            if change == "dtype" and changed:
                z = z.double()
            if change == "view" and changed:
                z = z.t()
            z = z * z
            if z.requires_grad:
                w.grad = None
                z.sum().backward()
            return z.detach()

        return f, lambda: [] if w.grad is None else [w.grad]

    x = td.arange(16.0).reshape(4, 4) / 7
    check_same(make, [(x, n in (4, 5, 6, 11)) for n in range(16)], least=3)


def test_results_that_are_kept_only_sometimes():
    kept = []

    def make():
        kept.clear()

        def f(x, keep):
            y = x * 2
            z = y + 1
            if keep:
                kept.append(y)
            return z

        return f, lambda: list(kept)

    check_same(make, [(td.ones(3) * n, n in (3, 7, 8, 9)) for n in range(12)], least=3)


def test_a_value_that_is_read_on_the_way():
    def make():
        def f(x):
            y = x * 3
            if float(y.sum()) > 10:
                y = y / 2
            return y + 1

        return f, list

    check_same(make, [(td.ones(3) * n,) for n in (1, 1, 1, 1, 2, 2, 2, 2, 1, 1, 2, 1)], least=6)


def test_writes_from_outside_between_calls_are_seen():
    def make():
        w, cache = td.ones(3), {"scale": td.ones(3)}
        numbers = iter(range(100))

        def f(x):
            return x * w * cache["scale"]

        def outside():
            number = next(numbers)
            if number % 3 == 1:
                w.add_(1)
            if number == 5:
                cache["scale"] = td.arange(3.0)
            if number == 7:
                w.data = td.arange(3.0).double()
            return w

        return f, outside

    check_same(make, [(td.ones(3),)] * 12, least=6)


def test_writes_from_outside_within_a_call_are_seen():
    def make():
        w, numbers = td.ones(3), iter(range(100))

        def f(x):
            y = x * w
            if next(numbers) in (4, 5, 8):
                w.data.add_(1)
            return y + w

        return f, lambda: w

    check_same(make, [(td.ones(3),)] * 12, least=1)


def test_a_parameter_that_another_one_takes_the_place_of():
    def make():
        model = nn.Linear(3, 3)
        numbers = iter(range(100))

        def f(x):
            if next(numbers) == 5:
                model.weight = nn.Parameter(td.ones(3, 3))
            model.zero_grad()
            model(x).sum().backward()
            return model.weight.grad

        return f, lambda: list(model.parameters())

    check_same(make, [(td.ones(2, 3),)] * 9, least=5)


def test_weights_that_are_frozen_and_thawed():
    def make():
        model, numbers = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)), iter(range(100))

        def f(x):
            model[0].requires_grad_(next(numbers) not in (4, 5))
            model.zero_grad()
            model(x).sum().backward()
            return [p.grad for p in model.parameters() if p.grad is not None]

        return f, list

    check_same(make, [(td.ones(2, 3),)] * 10, least=3)


def test_an_error_on_the_way_leaves_what_eager_code_leaves():
    def run(wrap):
        x, found = td.ones(3), []

        @wrap
        def f(number):
            x.add_(1)
            if number == 5:
                raise KeyError(number)
            x.mul_(2)
            return x.sum()

        for number in range(9):
            try:
                found.append(f(number).item())
            except KeyError:
                found.append(None)
            found.append(x.tolist())
        return found

    assert run(lambda f: f) == run(td.compile)


def test_errors_of_values_name_the_line_of_this_call():
    table = td.arange(12.0).reshape(4, 3)

    def here(i):
        return table[i + 1].sum()

    def there(i):
        return table[i + 1].sum()

    f = td.compile(lambda i, which: which(i))
    for _ in range(4):
        f(td.tensor([0, 1]), here)
    for which in (here, there):
        with pytest.raises(IndexError, match=f"test_predicted_calls.py:{which.__code__.co_firstlineno + 1}"):
            f(td.tensor([0, 5]), which)
    assert predicted(f) >= 2
    assert 51.0 == f(td.tensor([1, 2]), here).item()


def test_views_of_results_and_their_gradients():
    def make():
        w = td.arange(12.0).reshape(3, 4).requires_grad_()

        def f(x):
            w.grad = None
            a, b = (w * x).chunk(2, 1)
            y = a.t().reshape(-1) * b.reshape(-1) + a.sum()
            y.sum().backward()
            return y.detach(), w.grad

        return f, list

    check_same(make, [(td.ones(3, 4) * n,) for n in range(6)], least=4)


def test_a_write_through_a_view():
    def make():
        def f(x):
            y = x * 2
            y[0] += 1
            y[:, 1] = 5
            return y.sum(0)

        return f, list

    check_same(make, [(td.ones(2, 3) * n,) for n in range(6)], least=4)


@pytest.mark.parametrize("reads", ["base", "view", "both", "another", "transposed"])
def test_gradients_through_writes_of_views(reads):
    def make():
        w = td.arange(12.0).reshape(3, 4).requires_grad_()

        def f(x):
            w.grad = None
            y = w * x
            row, rest = y[0], y[1:]
            row *= x
            rest[:, :2] = row[2:] * 3
            shown = {"base": (y,), "view": (row,), "both": (y, rest), "another": (y[:, 1],), "transposed": (y.t()[1:],)}
            sum((t * t).sum() for t in shown[reads]).backward()
            return y.detach(), w.grad

        return f, list

    check_same(make, [(td.tensor(float(n)),) for n in range(6)], least=4)


def test_other_writes_through_views_than_last_time():
    def make():
        numbers = iter(range(100))

        def f(x):
            number = next(numbers)
            y, z = x * 2, x + 1
            if number == 4:
                kept = y.clone()
                y[0] = z[1]
            elif number == 6:
                y[1] -= z[0]
            else:
                y[0] += z[1]
            if number == 8:
                z[:, 0] = y[0, 0]
            y[:, 1] = z[:, 0]
            return y, z, (kept if number == 4 else y[1])

        return f, list

    check_same(make, [(td.arange(6.0).reshape(2, 3) * n,) for n in range(16)], least=3)


def test_gradients_of_gradients():
    def make():
        w = td.arange(3.0).requires_grad_()

        def f(x):
            w.grad = None
            (g,) = td.autograd.grad((w**3 * x).sum(), [w], create_graph=True)
            (g * g).sum().backward()
            return w.grad

        return f, list

    check_same(make, [(td.ones(3) * n,) for n in range(6)], least=4)


def test_modes_of_the_call():
    def make():
        numbers = iter(range(100))

        def f(x, w):
            number = next(numbers)
            if number in (4, 5, 6):
                with td.autocast("cpu", dtype=td.bfloat16):
                    return (x @ w).float()
            return x @ w

        return f, list

    x = td.arange(16.0).reshape(4, 4) / 16
    check_same(make, [(x, x)] * 12, least=3)


def test_random_numbers_go_on():
    check_same(lambda: (lambda x: (F.dropout(x), td.rand(3), td.randn(2)), list), [(td.ones(50),)] * 8, least=6)


def test_threads_that_call_one_function():
    w = td.ones(4, 4)
    f = td.compile(lambda x: td.tanh(x @ w) * 2 + x)
    expected = [td.tanh(td.ones(2, 4) * n @ w) * 2 + n for n in range(4)]
    wrong = []

    def work(n):
        for _ in range(100):
            if not np.allclose(np.array(f(td.ones(2, 4) * n)), np.array(expected[n])):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert [] == wrong
    assert predicted(f) >= 100


def random_program(seed: int, calls: int):
    """A function of (state, number) whose operators depend on both a little: mostly the same, now and then others."""
    rng = np.random.default_rng(seed)
    plan = rng.integers(0, 9, size=12)
    odd = {int(n): (int(rng.integers(12)), int(rng.integers(9))) for n in rng.choice(calls, 5, replace=False)}
    w = td.arange(12.0).reshape(3, 4).div(9).requires_grad_()
    state = [td.ones(3, 4), td.arange(12.0).reshape(3, 4) / 5]

    def apply(code, values):
        a, b = values[-1], values[int(plan[code] * 7 + code) % len(values)]
        if code == 0:
            return a * b
        if code == 1:
            return td.tanh(a) + w
        if code == 2:
            return a.sum(0, keepdim=True) + b
        if code == 3:
            return td.where(a > b, a, w * 2)
        if code == 4:
            state[0].add_(a.detach() * 0.01)
            return a + state[0]
        if code == 5:
            return a.t().reshape(3, 4) - b
        if code == 6:
            state[1] = (state[1] * 0.9 + a.detach() * 0.1).detach()
            return a / (1 + b * b)
        if code == 7:
            c = a[:, 1:3]
            return a + c.sum() / 12
        return F.softmax(a, 1) * state[1]

    def f(x, number):
        values = [x, x * w]
        for i, code in enumerate(plan):
            if number in odd and odd[number][0] == i:
                code = odd[number][1]
            values.append(apply(int(code), values))
        w.grad = None
        values[-1].mean().backward()
        with td.no_grad():
            w.sub_(0.01 * w.grad)
        return values[-1].detach()

    return f, lambda: (w, *state)


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(n, marks=pytest.mark.slow) for n in range(4, 100))])
def test_random_programs(seed):
    x = td.arange(12.0).reshape(3, 4) / 12
    check_same(lambda: random_program(seed, 24), [(x, n) for n in range(24)], least=4)


def test_a_write_that_copies_what_backward_needs_first():
    def make():
        w = td.ones(3, 4, requires_grad=True)

        def f(x):
            w.grad = None
            y = w * x
            y *= y
            y = y + 1
            y.relu_()
            y.sum().backward()
            return y.detach(), w.grad

        return f, list

    check_same(make, [(td.ones(3, 4) * n,) for n in range(6)], least=4)
