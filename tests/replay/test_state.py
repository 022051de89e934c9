"""What a replayed function reads: another value is another call."""

import numpy as np
import pytest

import tandem as td
from tandem import nn, optim
from tests.replay.replays import Counted, few, model_and_step, refused, warmed

SCALE = 2.0


ITEMS = [1.0, 2.0]


def batches(count, size=5):
    g = td.Generator(3)
    return [(td.randn(size, 4, generator=g), td.randint(0, 3, (size,), generator=g)) for _ in range(count)]


def test_a_global_number(monkeypatch):
    f = warmed(lambda x: x * SCALE, td.ones(2))
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert f(td.ones(2)).tolist() == [5, 5]


def test_a_global_list(monkeypatch):
    f = warmed(lambda x: x * sum(ITEMS) + len(ITEMS), td.ones(2))
    monkeypatch.setitem(globals(), "ITEMS", ITEMS)
    ITEMS.append(4.0)
    try:
        assert f(td.ones(2)).tolist() == [10, 10]
        ITEMS[0] = 2.0
        assert f(td.ones(2)).tolist() == [11, 11]
    finally:
        ITEMS[:] = [1.0, 2.0]


def test_a_closure():
    scale = 2.0

    def f(x):
        return x * scale

    g = warmed(f, td.ones(2))
    scale = 3.0
    assert g(td.ones(2)).tolist() == [3, 3]


def test_a_function_that_is_called(monkeypatch):
    f = warmed(lambda x: helper(x), td.ones(2))
    monkeypatch.setitem(globals(), "helper", lambda x: x * 7)
    assert f(td.ones(2)).tolist() == [7, 7]


def helper(x, by=3):
    return x * by


def test_defaults_of_a_function_that_is_called():
    f = warmed(lambda x: helper(x), td.ones(2))
    before = helper.__defaults__
    try:
        helper.__defaults__ = (4,)
        assert f(td.ones(2)).tolist() == [4, 4]
    finally:
        helper.__defaults__ = before


class Layer(nn.Module):
    scale_of_class = 1.0

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(td.ones(2))
        self.scale, self.steps, self.parts = 2.0, [1.0], nn.ModuleList([nn.Linear(2, 2)])
        self.options = {"shift": 0.0}

    def forward(self, x):
        y = x * self.weight * self.scale * sum(self.steps) * self.scale_of_class + self.options["shift"]
        return y * 2 if self.training else y


@pytest.mark.parametrize(
    "change",
    [
        lambda m: setattr(m, "scale", 3.0),
        lambda m: m.steps.append(2.0),
        lambda m: m.options.update(shift=1.0),
        lambda m: m.options.update(other=1.0),
        lambda m: setattr(m, "weight", nn.Parameter(td.zeros(2))),
        lambda m: m.weight.data.fill_(4.0),
        lambda m: setattr(m.weight, "data", td.full((2,), 6.0)),
        lambda m: m.eval(),
        lambda m: m.double(),
        lambda m: m.register_forward_hook(lambda m, args, y: y + 1),
        lambda m: m.register_forward_pre_hook(lambda m, args: (args[0] + 1,)),
        lambda m: m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()}),
        lambda m: setattr(m, "forward", lambda x: x * 100),
        lambda m: setattr(m, "__class__", Other),
        lambda m: m.weight.requires_grad_(False),
    ],
)
def test_state_of_a_module(change):
    m = Layer()

    def f(x):
        with td.no_grad():
            return m(x)

    g = warmed(f, td.ones(2))
    change(m)
    for _ in range(3):
        assert g(td.ones(2)).tolist() == f(td.ones(2)).tolist()


class Other(Layer):
    def forward(self, x):
        return x * 50


def test_an_attribute_and_a_method_of_a_class(monkeypatch):
    m = Layer()

    def f(x):
        with td.no_grad():
            return m(x)

    g = warmed(f, td.ones(2))
    monkeypatch.setattr(Layer, "scale_of_class", 9.0)
    assert g(td.ones(2)).tolist() == f(td.ones(2)).tolist()
    monkeypatch.setattr(Layer, "forward", lambda self, x: x * 11)
    assert g(td.ones(2)).tolist() == [11, 11]


def test_a_method_of_tandem_that_is_replaced(monkeypatch):
    linear = nn.Linear(2, 2)

    def f(x):
        with td.no_grad():
            return linear(x) * 1

    g = warmed(f, td.ones(2))
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x * 11)
    assert g(td.ones(2)).tolist() == [11, 11]


def test_modes():
    w = td.ones(2, requires_grad=True)
    f = Counted(lambda x: (x @ w.detach().reshape(2, 1), td.ones(1)))
    x = td.ones(2, 2)
    for _ in range(3):
        f(x)
    with td.autocast("cpu", dtype=td.bfloat16):
        assert f(x)[0].dtype == td.bfloat16 and f(x)[0].dtype == td.bfloat16
    assert f(x)[0].dtype == td.float32
    td.set_default_dtype(td.float64)
    try:
        assert f(x)[1].dtype == td.float64
    finally:
        td.set_default_dtype(td.float32)
    with td.inference_mode():
        assert f(x)[0].is_inference()
    assert not f(x)[0].is_inference()


def test_no_grad_around_a_call():
    w = td.ones(2, requires_grad=True)

    def f(x):
        y = (x * w).sum()
        if y.requires_grad:
            y.backward()
        return y.detach()

    g = warmed(f, td.ones(2))
    before = w.grad.tolist()
    with td.no_grad():
        for _ in range(3):
            g(td.ones(2))
    assert w.grad.tolist() == before


def test_the_eager_switch():
    f = warmed(lambda x: x * 2, td.ones(2))
    with td.switches(EAGER=1):
        assert f(td.ones(2)).tolist() == [2, 2]


def test_a_learning_rate_that_the_function_looks_at():
    _, opt, _ = model_and_step()

    def f(x):
        return x * 2 if opt.param_groups[0]["lr"] > 0.05 else x * 3

    g = warmed(f, td.ones(1))
    opt.param_groups[0]["lr"] = 0.01
    assert g(td.ones(1)).tolist() == [3]


def test_settings_of_an_optimizer():
    found = []
    for options in ({}, {"replay": True}):
        model, opt, step = model_and_step()
        run = td.compile(step, **options)
        for i, (x, y) in enumerate(batches(8)):
            if i == 4:
                opt.param_groups[0]["momentum"] = 0.1
            if i == 6:
                opt.param_groups[0]["weight_decay"] = 0.5
            run(x, y)
        found.append([p.tolist() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_frozen_parameter_and_a_loaded_optimizer():
    found = []
    for options in ({}, {"replay": True}):
        model, opt, step = model_and_step(lambda p: optim.Adam(p, lr=0.01))
        run = td.compile(step, **options)
        for i, (x, y) in enumerate(batches(9)):
            if i == 3:
                kept = opt.state_dict()
            if i == 4:
                model[0].weight.requires_grad_(False)
                model[0].weight.grad = None
            if i == 6:
                opt.load_state_dict(kept)
            run(x, y)
        found.append([p.tolist() for p in model.parameters()])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)


def test_a_tensor_that_is_an_argument_and_an_attribute():
    class Box:
        pass

    box = Box()
    box.kept = td.ones(2)

    def f(x):
        return x + box.kept * 10 + (1 if x is box.kept else 0)

    g = Counted(f)
    for _ in range(4):
        assert g(box.kept).tolist() == [12, 12]
    assert g(td.zeros(2)).tolist() == [10, 10]
    assert g(box.kept.detach()).tolist() == [11, 11]


def test_one_tensor_twice_is_not_two_views_of_it():
    def f(x, y):
        return x + 1 if x is y else x + 2

    x = td.ones(2)
    g = warmed(f, x, x)
    assert g(x, x.detach()).tolist() == [3, 3]


def test_an_attribute_that_a_tensor_or_a_function_gets():
    w = td.ones(2)

    def f(x):
        return x * getattr(w, "scale", 1) * getattr(helper, "scale", 1)

    g = warmed(f, td.ones(2))
    w.scale = 3
    assert g(td.ones(2)).tolist() == [3, 3]
    helper.scale = 2
    try:
        assert g(td.ones(2)).tolist() == [6, 6]
    finally:
        del helper.scale


def test_a_group_of_an_optimizer_that_the_function_reads_directly():
    _, opt, step = model_and_step()
    group, groups = opt.param_groups[0], opt.param_groups

    def one(x, y):
        step(x, y)
        return x * group["lr"]

    def other(x, y):
        step(x, y)
        return x * groups[0]["lr"]

    for f in (one, other):
        g = Counted(f)
        x, y = batches(1)[0]
        for _ in range(4):
            g(x, y)
        group["lr"] = group["lr"] / 2
        np.testing.assert_allclose(g(x, y).tolist(), (x * group["lr"]).tolist(), rtol=1e-6)


def test_an_array_on_a_layer_of_tandem():
    layer = nn.Linear(2, 2)
    layer.array = np.ones(2)
    refused(lambda x: x * layer.array.size, td.ones(2), match="numpy.ndarray")


def test_an_array_that_nobody_reads():
    layer = Layer()
    layer.array = np.ones(2)

    def f(x):
        with td.no_grad():
            return layer(x)

    warmed(f, td.ones(2))


def test_the_compiled_function_is_an_attribute_of_what_it_reads():
    class Trainer:
        def __init__(self):
            self.model, self.opt, _ = model_and_step()
            self.step = td.compile(self._step, replay=True)

        def _step(self, x, y):
            loss = nn.functional.cross_entropy(self.model(x), y)
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
            return loss

    trainer = Trainer()
    for x, y in batches(5):
        trainer.step(x, y)
    assert few(trainer.step._count, 2)
