"""Indices out of range on a CUDA device: the error of the CPU, and nothing is written by the step that has them."""

import inspect
import os

import pytest

import tandem as td
from tandem import nn

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


def message(call) -> str:
    with pytest.raises(td.IndexRangeError) as caught:
        call()
        td.cuda.synchronize()
    return str(caught.value).split("\n  at ")[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda x, i: x[i],
        lambda x, i: x[:, i],
        lambda x, i: td.take_along_axis(x, i.reshape(-1, 1), 0),
        lambda x, i: nn.functional.embedding(i, x),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.__setitem__(i, 0.0),
    ],
)
def test_the_text_is_that_of_the_cpu(call):
    index = td.tensor([1, 9])
    expected = message(lambda: call(td.ones(4, 3), index))
    there = td.ones(4, 3, device="cuda")
    assert expected == message(lambda: call(there, index.cuda()))
    assert expected.replace("index 9", "index 10") == message(
        lambda: td.compile(lambda i: call(there, i + 1))(index.cuda())
    )
    td.ones(3, device="cuda").sum().item()  # the device goes on


@pytest.mark.parametrize("how", ["eager", "compiled", "replayed"])
def test_a_step_with_a_bad_index_writes_nothing(how):
    td.manual_seed(0)
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 4), nn.BatchNorm1d(4)).to("cuda")
    optimizer = td.optim.Adam(model.parameters(), lr=0.1)

    def step(index):
        loss = (model(index) ** 2).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    step = step if how == "eager" else td.compile(step)
    good, bad = td.tensor([0, 1, 2]).cuda(), td.tensor([0, 9, 2]).cuda()
    for _ in range(5 if how == "replayed" else 1):
        step(good).item()
    before = {k: v.cpu().tolist() for k, v in model.state_dict().items()}
    with pytest.raises(td.IndexRangeError, match="index 9 is out of range for axis 0 with size 5"):
        for _ in range(3):
            step(bad)
        td.cuda.synchronize()
    assert before == {k: v.cpu().tolist() for k, v in model.state_dict().items()}
    step(good).item()
    assert before != {k: v.cpu().tolist() for k, v in model.state_dict().items()}


def test_sizes_that_come_back_are_replayed():
    fn = td.compile(lambda x: (td.softmax(x @ x.T, -1) * 2).sum(0))
    sizes = range(8, 20)
    for n in sizes:
        for _ in range(4):
            fn(td.ones(n, 4, device="cuda"))
    for n in sizes:
        x = td.randn(n, 4, device="cuda")
        td.testing.assert_close(fn(x).cpu(), (td.softmax(x.cpu() @ x.cpu().T, -1) * 2).sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["eager", "compiled", "replayed"])
def test_the_module_is_named(how):
    model = nn.Sequential(nn.Sequential(nn.Embedding(5, 4)), nn.Linear(4, 4)).to("cuda")
    step = model if how == "eager" else td.compile(lambda i: model(i).sum())
    for _ in range(5 if how == "replayed" else 0):
        step(td.tensor([0, 1, 2], device="cuda"))
    with pytest.raises(td.IndexRangeError) as caught:
        for _ in range(3):
            step(td.tensor([0, 9, 2], device="cuda"))
        td.cuda.synchronize()
    assert "Sequential.0.0" == caught.value.module and "Embedding(5, 4)" == caught.value.layer


def test_anomalies_name_the_line_of_the_forward_call():
    x = td.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    with td.autograd.detect_anomaly():
        line = inspect.currentframe().f_lineno + 1
        y = td.sqrt(x - 1)
        loss = (y * td.tensor([0.0, 1.0], device="cuda")).sum()
        with pytest.raises(td.AutogradError) as caught:
            loss.backward()
    assert "sqrt: backward gave a gradient" in str(caught.value)
    assert f"recorded at test_checks.py:{line}\n" in str(caught.value)


def test_a_forked_child_is_told_of_the_fork():
    x = td.ones(3, device="cuda")

    def told(call) -> bool:
        try:
            call()
        except td.DeviceError as error:
            return "was forked from one that had used CUDA" in str(error) and "spawn" in str(error)
        return False

    child = os.fork()
    if child == 0:
        ok = told(lambda: td.ones(3, device="cuda")) and told(x.cpu) and not td.cuda.is_available()
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert x.cpu().tolist() == [1, 1, 1]
