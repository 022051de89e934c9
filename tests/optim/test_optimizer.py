"""What all optimisers share: groups, state, hooks, saving, plans."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem import nn, optim
from tandem.optim import rule

ALL = {
    "SGD": {"lr": 0.1, "momentum": 0.9},
    "Adagrad": {"lr": 0.5},
    "Adadelta": {"lr": 20.0},
    "RMSprop": {"lr": 0.05},
    "Adam": {"lr": 0.1},
    "AdamW": {"lr": 0.1},
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.2},
    "Adamax": {"lr": 0.2},
    "Lion": {"lr": 0.05},
    "LAMB": {"lr": 0.1},
    "LARS": {"lr": 20.0},
    "Adafactor": {"lr": 0.5},
    "SparseAdam": {"lr": 0.1},
    "Rprop": {"lr": 0.1},
    "ASGD": {"lr": 0.1},
}


def loss_of(ps):
    return sum(((p - 1) ** 2).sum() for p in ps)


def train(optimizer, ps, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        loss_of(ps).backward()
        optimizer.step()


def fresh():
    return [nn.Parameter(td.full((3, 2), 2.0)), nn.Parameter(td.tensor([-1.0, 0.5]))]


@pytest.mark.parametrize("name", ALL)
def test_every_optimiser_descends(name):
    ps = fresh()
    optimizer = getattr(optim, name)(ps, **ALL[name])
    before = loss_of(ps).item()
    train(optimizer, ps, 30)
    assert loss_of(ps).item() < 0.5 * before


@pytest.mark.parametrize("name", ALL)
def test_maximize_goes_the_other_way(name):
    a, b = fresh(), fresh()
    down, up = getattr(optim, name)(a, **ALL[name]), getattr(optim, name)(b, **ALL[name], maximize=True)
    for _ in range(3):
        for p, q in zip(a, b, strict=True):
            p.grad, q.grad = td.ones_like(p), -td.ones_like(q)
        down.step()
        up.step()
    assert [p.tolist() for p in a] == [q.tolist() for q in b]


@pytest.mark.parametrize("name", ALL)
def test_training_goes_on_from_saved_state(name):
    whole, first = fresh(), fresh()
    a, b = (getattr(optim, name)(ps, **ALL[name]) for ps in (whole, first))
    train(a, whole, 6)
    train(b, first, 3)
    second = [nn.Parameter(p.detach().clone()) for p in first]
    c = getattr(optim, name)(second, lr=123.0)
    c.load_state_dict(pickle.loads(pickle.dumps(b.state_dict())))
    train(c, second, 3)
    assert [p.tolist() for p in whole] == [p.tolist() for p in second]
    train(b, first, 1)  # what was loaded is a copy
    assert [p.tolist() for p in first] != [p.tolist() for p in second]


@pytest.mark.parametrize("name", ALL)
def test_new_settings_need_no_new_plans(name):
    ps = fresh()
    optimizer = getattr(optim, name)(ps, **ALL[name])
    train(optimizer, ps, 2)
    rules = [
        f
        for m in (optim.sgd, optim.adam, optim.adaptive, optim.classic, optim.layerwise)
        for f in vars(m).values()
        if hasattr(f, "num_plans")
    ]
    plans = sum(f.num_plans for f in rules)
    assert plans
    for step in range(3):
        for group in optimizer.param_groups:
            group["lr"] *= 0.5 + 0.1 * step
            if "betas" in group:
                group["betas"] = (0.8 + 0.01 * step, 0.9)
            group["weight_decay"] = 0.1 * step
        train(optimizer, ps, 1)
    assert plans == sum(f.num_plans for f in rules)


@pytest.mark.parametrize("dtype", [td.float16, td.bfloat16])
@pytest.mark.parametrize("name", ["SGD", "Adam", "Adafactor", "LAMB"])
def test_narrow_parameters_are_updated_in_float32(name, dtype):
    ps = [nn.Parameter(td.full((3, 2), 2.0, dtype=dtype))]
    optimizer = getattr(optim, name)(ps, **ALL[name])
    for _ in range(20):
        ps[0].grad = (2 * (ps[0] - 1)).detach()
        optimizer.step()
    assert (
        ps[0].dtype is dtype
        and np.isfinite(ps[0].detach().float().numpy()).all()
        and abs(ps[0].detach().float().mean().item() - 1) < 0.9
    )


def test_the_learning_rate_may_be_a_tensor():
    a, b = fresh(), fresh()
    lr = td.tensor(0.1)
    one, other = optim.Adam(a, lr=lr), optim.Adam(b, lr=0.1)
    train(one, a, 2)
    train(other, b, 2)
    lr.fill_(0.01)
    other.param_groups[0]["lr"] = 0.01
    train(one, a, 2)
    train(other, b, 2)
    for p, q in zip(a, b, strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-6)
    schedule = optim.lr_scheduler.StepLR(one, 1, 0.5)
    schedule.step()
    assert one.param_groups[0]["lr"] is lr and lr.item() == pytest.approx(0.005)


def test_groups():
    ps = fresh()
    o = optim.SGD([{"params": ps[0], "lr": 1.0}, {"params": [ps[1]]}], lr=0.5)
    for p in ps:
        p.grad = td.ones_like(p)
    before = [p.detach().clone() for p in ps]
    o.step()
    assert (before[0] - ps[0]).tolist() == [[1.0] * 2] * 3 and (before[1] - ps[1]).tolist() == [0.5] * 2
    extra = nn.Parameter(td.zeros(1))
    o.add_param_group({"params": [extra], "momentum": 0.9})
    assert [1.0, 0.5, 0.5] == [g["lr"] for g in o.param_groups] and o.param_groups[2]["momentum"] == 0.9
    assert "Parameter Group 2" in repr(o) and "lr: 0.5" in repr(o)
    named = optim.SGD(nn.Linear(1, 1).named_parameters(), lr=0.1)
    assert named.param_groups[0]["param_names"] == ["weight", "bias"]


def test_closures_and_minimize():
    ps = fresh()
    o = optim.SGD(ps, lr=0.1)

    def closure():
        o.zero_grad()
        loss = loss_of(ps)
        loss.backward()
        return loss

    first = o.step(closure).item()
    assert o.step(closure).item() < first
    with td.no_grad():
        assert o.step(closure).item() < first
    before = loss_of(ps).item()
    o.minimize(loss_of(ps))
    assert loss_of(ps).item() < before


def test_zero_grad():
    ps = fresh()
    o = optim.SGD(ps, lr=0.1)
    loss_of(ps).backward()
    o.zero_grad(set_to_none=False)
    assert not ps[0].grad.any()
    o.zero_grad()
    assert ps[0].grad is None


def test_hooks_and_copies():
    ps = fresh()
    o = optim.Adam(ps)
    seen = []
    handles = [
        o.register_step_pre_hook(lambda *a: seen.append("pre")),
        o.register_step_post_hook(lambda *a: seen.append("post")),
    ]
    train(o, ps, 1)
    for h in handles:
        h.remove()
    train(o, ps, 1)
    assert seen == ["pre", "post"]
    copied = copy.deepcopy(o)
    assert copied.param_groups[0]["params"][0] is not ps[0]
    assert list(copied.state) and all(any(p is q for q in copied.param_groups[0]["params"]) for p in copied.state)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: optim.SGD([], lr=0.1), ValueError, "no parameters"),
        (lambda p: optim.SGD(p, lr=0.1), TypeError, "put it in a list"),
        (lambda p: optim.SGD([3], lr=0.1), TypeError, "take tensors"),
        (lambda p: optim.SGD([p * 2], lr=0.1), ValueError, "leaves"),
        (lambda p: optim.SGD([p, p], lr=0.1), ValueError, "twice"),
        (lambda p: optim.SGD([{"params": [p]}, {"params": [p]}], lr=0.1), ValueError, "twice"),
        (lambda p: optim.SGD([p], lr=-1), ValueError, "lr is -1"),
        (lambda p: optim.SGD([p], nesterov=True), ValueError, "nesterov"),
        (lambda p: optim.Adam([p], betas=(1.0, 0.9)), ValueError, r"betas\[0\] is 1.0"),
        (lambda p: optim.Adam([p], bogus=1), TypeError, "'bogus'"),
        (lambda p: optim.Adam([p], differentiable=True), ValueError, "differentiable"),
        (lambda p: optim.LBFGS([p], line_search_fn="x"), ValueError, "strong_wolfe"),
        (lambda p: optim.LBFGS([{"params": [p]}, {"params": [nn.Parameter(td.ones(1))]}]), ValueError, "one group"),
        (
            lambda p: optim.SGD([p]).load_state_dict(
                optim.SGD([nn.Parameter(td.ones(1)), nn.Parameter(td.ones(1))]).state_dict()
            ),
            ValueError,
            r"groups of \[2\]",
        ),
    ],
)
def test_mistakes_are_explained(make, error, text):
    with pytest.raises(error, match=text):
        make(nn.Parameter(td.ones(2)))


def test_a_rule_of_ones_own():
    @rule("exp_avg")
    def signed(param: Tensor, exp_avg: Tensor, grad: Tensor, lr: Tensor, beta: Tensor):  # noqa: F821
        exp_avg = beta * exp_avg + (1 - beta) * grad
        return param - lr * F.sign(exp_avg), exp_avg

    class Signed(optim.Optimizer):
        def __init__(self, params, lr=1e-3, beta=0.9):
            super().__init__(params, {"lr": lr, "beta": beta})

        def rule(self, group):
            return signed, (group["lr"], group["beta"])

    ps = fresh()
    before = loss_of(ps).item()
    train(Signed(ps, lr=0.1), ps, 5)
    assert loss_of(ps).item() < before


def test_no_parameters_are_a_mistake_and_an_empty_group_is_not():
    with pytest.raises(ValueError, match=r"SGD got no parameters(?s:.)*fix: .*\[{\"params\": \[\]}\]"):
        td.optim.SGD(td.nn.ReLU().parameters(), lr=0.1)
    optimizer = td.optim.AdamW([{"params": []}], lr=0.1)
    optimizer.step()
    optimizer.zero_grad()
    assert optimizer.state_dict()["param_groups"][0]["params"] == []


def test_a_rule_without_annotations_says_what_is_missing():
    with pytest.raises(
        td.DTypeError, match=r"annotated as tensors\n  fix: def signed\(param: Tensor, exp_avg: Tensor, \.\.\.\)"
    ):

        @td.optim.optimizer.rule("exp_avg")
        def signed(param, exp_avg, grad, lr):
            return param, exp_avg
