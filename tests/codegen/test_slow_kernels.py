"""Kernels that are slow by their text (benchmarks/zoo_kernels.py): compiled steps with mixed layouts and short loops have none."""

import pathlib
import sys

import numpy as np
import pytest

import tandem as td
from tandem.codegen.cpu.target import CpuTarget
from tests.codegen.lowering import lowered
from tests.codegen.ops import mul, reduce

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))
from zoo_kernels import findings, findings_of


class Careless(CpuTarget):
    separates_units = False
    keeps_runs = False


ROWS, COLUMNS = np.ones((512, 256), np.float32), np.ones((256, 512), np.float32).T


def slow(function, *arrays, target):
    return [f for step in lowered(function, arrays, "make_steps", target=target).steps for f in findings(step)]


def test_it_finds_gathers():
    across = lambda x, y: reduce("sum", mul(x, y), (1,))
    assert slow(across, ROWS, COLUMNS, target=Careless()) == ["gathers"]
    assert slow(across, ROWS, COLUMNS, target=CpuTarget()) == []


def pointwise_network():
    first, norm, second = td.nn.Conv1d(16, 64, 1), td.nn.BatchNorm1d(64), td.nn.Conv1d(64, 128, 1)
    net = td.nn.ModuleList([first, norm, second])
    return net, td.randn(4, 16, 256), lambda x: second(norm(first(x)).relu()).max(-1)[0].square().sum()


def patches():
    embed, norm, out = td.nn.Conv2d(3, 128, 4, stride=4), td.nn.LayerNorm(128), td.nn.Linear(128, 128)
    net = td.nn.ModuleList([embed, norm, out])

    def loss(x):
        tokens = embed(x).flatten(2).transpose(1, 2)
        return (tokens + out(norm(tokens))).square().sum()

    return net, td.randn(8, 3, 32, 32), loss


def encoded_points():
    first = td.nn.Linear(39, 64)

    def loss(x):
        points = x[:, None, :] + td.linspace(0.0, 1.0, 32)[None, :, None] * x[:, None, :]
        waves = [f(2.0**i * points) for i in range(6) for f in (td.sin, td.cos)]
        return first(td.cat([points, *waves], -1)).relu().sum()

    return first, td.randn(1024, 3), loss


def excited_volumes():
    conv, norm, squeeze = td.nn.Conv3d(3, 16, 3, padding=1), td.nn.GroupNorm(4, 16), td.nn.Linear(16, 16)
    net = td.nn.ModuleList([conv, norm, squeeze])

    def loss(x):
        h = norm(conv(x)).relu()
        scales = squeeze(h.mean((2, 3, 4))).sigmoid()
        return (h * scales[:, :, None, None, None]).square().sum()

    return net, td.randn(2, 3, 8, 16, 16), loss


@pytest.mark.parametrize("make", [pointwise_network, patches, encoded_points, excited_volumes])
def test_training_steps_have_no_slow_kernels(make):
    net, x, loss = make()

    def step(x):
        net.zero_grad()
        value = loss(x)
        value.backward()
        return value, [p.grad for p in net.parameters()]

    compiled = td.compile(step)
    compiled(x)
    assert not findings_of(compiled)
