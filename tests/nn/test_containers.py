"""Containers."""

import pytest

import tandem as td
from tandem import nn


def test_sequential():
    a, b, c = nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)
    s = nn.Sequential(a, b, c)
    x = td.ones(4, 2)
    assert s(x).tolist() == c(b(a(x))).tolist()
    assert s[0] is a and s[-1] is c and len(s) == 3 and list(s) == [a, b, c]
    assert list(s[1:]) == [b, c] and isinstance(s[1:], nn.Sequential)
    named = nn.Sequential({"first": a, "second": c})
    assert named.first is a and ["first.weight", "first.bias", "second.weight", "second.bias"] == list(
        named.state_dict()
    )
    s[1] = nn.Tanh()
    assert isinstance(s[1], nn.Tanh)
    s.append(nn.Identity()).insert(0, nn.Identity())
    assert [type(m).__name__ for m in s] == ["Identity", "Linear", "Tanh", "Linear", "Identity"]
    del s[0]
    assert s.pop() is not None and [n for n, _ in s.named_children()] == ["0", "1", "2"]
    s.extend([nn.ReLU()])
    assert len(s + nn.Sequential(nn.ReLU())) == 5 and len(nn.Sequential(a) * 3) == 3
    with pytest.raises(IndexError, match="outside"):
        s[9]


def test_module_list():
    ms = nn.ModuleList(nn.Linear(1, 1) for _ in range(3))
    assert len(list(ms.parameters())) == 6 and ms[-1] is ms[2] and len(ms[:2]) == 2
    ms += [nn.ReLU()]
    ms.insert(1, nn.Tanh())
    assert [type(m).__name__ for m in ms] == ["Linear", "Tanh", "Linear", "Linear", "ReLU"]
    del ms[1:3]
    assert ["0", "1", "2"] == list(ms._modules) and len(ms + [nn.ReLU()]) == 4
    with pytest.raises(TypeError, match="Module"):
        ms.append(3)
    with pytest.raises(TypeError, match="Module"):
        ms.insert(0, 3)


def test_module_dict():
    d = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Linear(1, 1)})
    d["c"] = nn.Tanh()
    assert list(d) == ["a", "b", "c"] == list(d.keys()) and "b" in d and len(d) == 3
    assert isinstance(d.pop("a"), nn.ReLU) and [k for k, _ in d.items()] == ["b", "c"]
    d.update([("e", nn.ReLU())])
    del d["b"]
    assert [type(m).__name__ for m in d.values()] == ["Tanh", "ReLU"]
    d.clear()
    assert not len(d)


def test_parameter_list():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.ps = nn.ParameterList([td.ones(2), nn.Parameter(td.zeros(1))])

    m = M()
    m.ps.append(td.ones(3))
    m.ps += [td.ones(1)]
    assert ["ps.0", "ps.1", "ps.2", "ps.3"] == [n for n, _ in m.named_parameters()]
    assert len(m.ps) == 4 and m.ps[-1].shape == (1,) and len(m.ps[1:3]) == 2
    m.ps[0] = td.zeros(5)
    assert isinstance(m.ps[0], nn.Parameter) and m.ps[0].requires_grad
    assert "(0): Parameter of shape (5,), float32" in repr(m.ps)


def test_parameter_dict():
    d = nn.ParameterDict({"w": td.ones(2)})
    d["v"] = nn.Parameter(td.ones(1))
    assert list(d) == ["w", "v"] and len(d) == 2 and "w" in d and d.get("none") is None
    assert d.setdefault("z", td.ones(1)).shape == (1,) and [k for k, _ in d.items()] == list(d.keys())
    assert len(list(d.parameters())) == 3 == len(list(d.values()))
    del d["z"]
    assert d.pop("v").shape == (1,)
    d.clear()
    assert not len(d)
