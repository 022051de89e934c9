"""Schedules without PyTorch at hand; tests/oracle compares whole trajectories."""

import json
import math

import pytest

import tandem as td
from tandem import nn, optim
from tandem.optim import lr_scheduler as S

MAKE = {
    "step": lambda o: S.StepLR(o, 3, 0.5),
    "multistep": lambda o: S.MultiStepLR(o, [2, 5], 0.1),
    "constant": lambda o: S.ConstantLR(o, 0.5, 3),
    "linear": lambda o: S.LinearLR(o, 0.1, 1.0, 5),
    "exponential": lambda o: S.ExponentialLR(o, 0.9),
    "polynomial": lambda o: S.PolynomialLR(o, 6, 2.0),
    "cosine": lambda o: S.CosineAnnealingLR(o, 5),
    "restarts": lambda o: S.CosineAnnealingWarmRestarts(o, 2, 2),
    "lambda": lambda o: S.LambdaLR(o, lambda e: 1 / (1 + e)),
    "cyclic": lambda o: S.CyclicLR(o, 0.1, 1.0, 2),
    "onecycle": lambda o: S.OneCycleLR(o, 1.0, total_steps=12),
    "chained": lambda o: S.ChainedScheduler([S.ConstantLR(o, 0.5, 2), S.ExponentialLR(o, 0.9)]),
    "sequential": lambda o: S.SequentialLR(o, [S.LinearLR(o, 0.5, total_iters=2), S.ExponentialLR(o, 0.9)], [3]),
}


def optimizer(lr=1.0):
    return optim.SGD([nn.Parameter(td.zeros(1))], lr=lr, momentum=0.9)


@pytest.mark.parametrize("name", MAKE)
def test_schedules_resume(name):
    o = optimizer()
    schedule = MAKE[name](o)
    for _ in range(4):
        schedule.step()
    saved = schedule.state_dict(), o.state_dict()
    if name not in ("multistep", "lambda"):
        json.dumps(saved[0])  # nothing but plain values
    rest = []
    for _ in range(6):
        schedule.step()
        rest.append(o.param_groups[0]["lr"])
    again = optimizer()
    other = MAKE[name](again)
    again.load_state_dict(saved[1])
    other.load_state_dict(saved[0])
    for expected in rest:
        other.step()
        assert again.param_groups[0]["lr"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", ["step", "multistep", "constant", "linear", "exponential", "polynomial", "cosine"])
def test_going_to_an_epoch_is_going_there_step_by_step(name):
    a, b = optimizer(), optimizer()
    by_step, at_once = MAKE[name](a), MAKE[name](b)
    for _ in range(5):
        by_step.step()
    at_once.step(5)
    assert a.param_groups[0]["lr"] == pytest.approx(b.param_groups[0]["lr"], rel=1e-9, abs=1e-12)


def test_plateau():
    o = optimizer()
    schedule = S.ReduceLROnPlateau(o, factor=0.5, patience=1)
    for figure in (3.0, 2.0, td.tensor(2.0), 2.0, 2.0):
        schedule.step(figure)
    assert o.param_groups[0]["lr"] == 0.5 == schedule.get_last_lr()[0]
    again = S.ReduceLROnPlateau(o, factor=0.5, patience=1)
    again.load_state_dict(schedule.state_dict())
    assert again.best == 2.0 and "optimizer" not in schedule.state_dict()


def test_cosine_goes_half_way():
    o = optimizer()
    schedule = S.CosineAnnealingLR(o, 10)
    for _ in range(5):
        schedule.step()
    assert o.param_groups[0]["lr"] == pytest.approx(0.5)


def test_callable_objects_keep_their_state():
    class Decay:
        rate = 0.5

        def __call__(self, epoch):
            return self.rate**epoch

    f = Decay()
    schedule = S.LambdaLR(optimizer(), f)
    f.rate = 0.25
    other = S.LambdaLR(optimizer(), Decay())
    other.load_state_dict(schedule.state_dict())
    assert other.lr_lambdas[0].rate == 0.25


@pytest.mark.parametrize("make", [
    lambda o: S.StepLR(3, 1), lambda o: S.LambdaLR(o, [math.exp] * 2), lambda o: S.ConstantLR(o, 2.0), lambda o: S.LinearLR(o, 0.0),
    lambda o: S.CosineAnnealingWarmRestarts(o, 0), lambda o: S.ReduceLROnPlateau(o, factor=1.0), lambda o: S.OneCycleLR(o, 1.0),
    lambda o: S.SequentialLR(o, [S.ExponentialLR(o, 0.9)], [1]), lambda o: S.ChainedScheduler([]),
    lambda o: S.CyclicLR(optim.Adagrad([nn.Parameter(td.zeros(1))]), 0.1, 1.0), lambda o: S.CyclicLR(o, 0.1, 1.0, mode="square"),
])  # fmt: skip
def test_mistakes(make):
    with pytest.raises((ValueError, TypeError)):
        make(optimizer())


def test_resuming_needs_the_first_rates():
    with pytest.raises(KeyError, match="initial_lr"):
        S.StepLR(optimizer(), 1, last_epoch=3)
