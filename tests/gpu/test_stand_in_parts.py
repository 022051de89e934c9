"""Programs over several devices, on a stand-in whose kernels compute nothing: the host computes, the device keeps copies."""

import shutil

import pytest

from tests.gpu.test_stand_in import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

HEAD = """
import warnings
warnings.simplefilter("error")  # a program that cannot be compiled is told of by a warning
"""


def test_a_compiled_function_moves_tensors_and_goes_on(tmp_path):
    script = (
        HEAD
        + """
def f(x):
    y = (x * 2 + 1).to("cuda")
    return y.cpu() + 1, y, x.T.cuda(), x[:, ::2].cuda()
g = td.compile(f, whole=True)
for n in (3, 3, 5, 7):
    x = td.arange(4.0 * n).reshape(n, 4)
    z, y, turned, strided = g(x)
    assert y.device == turned.device == strided.device == "cuda:0" and z.device == "cpu"
    assert z.tolist() == (x * 2 + 2).tolist() and y.tolist() == (x * 2 + 1).tolist()
    assert turned.tolist() == x.T.tolist() and strided.tolist() == x[:, ::2].tolist()
    assert turned.strides == x.T.strides
assert "1 programs" in g.explain(), g.explain()

@td.compile(whole=True)
def writes(a):
    with td.device("cuda"):
        z = td.zeros(3)
    there = a.to("cuda")
    a.add_(1.0)
    return there, a * 1, z.device
for i in range(4):
    a = td.arange(3.0)
    there, after, device = writes(a)
    assert there.tolist() == [0.0, 1.0, 2.0] and after.tolist() == a.tolist() == [1.0, 2.0, 3.0] and device == "cuda:0"

pick = td.compile(lambda x, i: td.index_select((x * 2).cuda().cpu(), 0, i))
assert pick(td.arange(4.0), td.tensor([3])).tolist() == [6.0]
try:
    pick(td.arange(4.0), td.tensor([9]))
except td.IndexRangeError as error:
    assert "index 9 is out of range" in str(error)
else:
    raise AssertionError
def mixed(a, b):
    return a + b.cuda()
said = []
for call in (mixed, td.compile(mixed)):
    try:
        call(td.ones(3), td.ones(3))
    except td.DeviceError as error:
        said.append(str(error))
assert said[0] == said[1] and "add: its tensors are on different devices: cpu, cuda:0" in said[0], said
"""
    )
    run(script, tmp_path)
    run(script, tmp_path)  # from disk


def test_gradients_come_back_to_any_order(tmp_path):
    run(
        HEAD
        + """
w = td.arange(4.0).requires_grad_()
def loss(w):
    return ((w ** 3).to("cuda").cpu() * 2.0).sum()
def first(w):
    return td.autograd.grad(loss(w), w)[0]
def second(w):
    (g,) = td.autograd.grad(loss(w), w, create_graph=True)
    return td.autograd.grad(g.sum(), w)[0]
for f, expected in ((first, 6 * w ** 2), (second, 12 * w)):
    assert f(w).tolist() == expected.tolist()
    compiled = td.compile(f, whole=True)
    for _ in range(3):
        assert compiled(w).tolist() == expected.tolist()
value, tangent = td.jvp(lambda x: (x * x).cuda().cpu(), (td.arange(3.0),), (td.ones(3),))
assert tangent.tolist() == [0.0, 2.0, 4.0]

p = td.ones(4, requires_grad=True)
@td.compile(whole=True)
def step(x):
    loss = ((x * p).to("cuda").cpu() ** 2).sum()
    loss.backward()
    with td.no_grad():
        p.sub_(p.grad * 0.1)
        p.grad = None
    return loss
q = np.ones(4)
x = td.arange(4.0)
for _ in range(4):
    assert abs(step(x).item() - ((x.numpy() * q) ** 2).sum()) < 1e-4
    q = q - 0.2 * x.numpy() ** 2 * q
    np.testing.assert_allclose(p.detach().numpy(), q, rtol=1e-5)
""",
        tmp_path,
    )


def test_transforms_loops_and_branches_move_tensors(tmp_path):
    run(
        HEAD
        + """
x = td.arange(24.0).reshape(2, 3, 4)
assert td.vmap(lambda r: (r + 1).to("cuda").cpu() * 2)(x).tolist() == ((x + 1) * 2).tolist()
def body(c, r):
    c = c + r.to("cuda").cpu()
    return c, c * 2
scan = lambda x: td.scan(body, td.zeros(3, 4), x)
for f in (scan, td.compile(scan, whole=True)):
    for n in (2, 3, 5):
        x = td.arange(12.0 * n).reshape(n, 3, 4)
        last, rows = f(x)
        assert last.tolist() == x.sum(0).tolist() and rows[0].tolist() == (2 * x[0]).tolist()
w = td.ones(3, 4, requires_grad=True)
(g,) = td.autograd.grad(td.scan(lambda c, r: (c + (r * w).cuda().cpu(), None), td.zeros(3, 4), x)[0].sum(), w)
assert g.tolist() == x.sum(0).tolist()
branch = td.compile(lambda x: td.cond(x.sum() > 0, lambda: x.to("cuda").cpu() + 1, lambda: x), whole=True)
assert branch(td.ones(2)).tolist() == [2.0, 2.0] and branch(-td.ones(2)).tolist() == [-1.0, -1.0]
""",
        tmp_path,
    )


def test_loops_and_branches_over_several_devices_run_step_by_step(tmp_path):
    script = (
        HEAD
        + """
x, w = td.randn(4, 3, 8), td.ones(8, 8).to("cuda")
def body(c, row):
    c = c + td.tanh(row.cuda().cpu() + w[0].cpu() * 0)
    return c, c.sum()
once = lambda c, row: body(c, row)[0]
functions = [
    lambda x: td.scan(body, td.zeros(3, 8), x),
    lambda x: td.map(lambda row: once(row, row), x),
    lambda x: td.fori_loop(0, 3, lambda i, c: once(c, x[0]), td.zeros(3, 8)),
    lambda x: td.while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, once(c, x[0])), (td.tensor(0), td.zeros(3, 8)))[1],
    lambda x: td.cond(x.sum() > 1000, lambda v: v * 2, lambda v: once(v, x[0]), x[1]),
    lambda x: td.switch_case(td.tensor(1) + (x.sum() > 1e6), [lambda v: v * 2, lambda v: once(v, x[0])], x[1]),
    lambda x: td.scan(lambda c, r: (td.fori_loop(0, 2, lambda i, c: once(c, r), c), r.sum()), td.zeros(3, 8), x),
]
for f in functions:
    expected, compiled = f(x), td.compile(f)
    for _ in range(3):
        made = compiled(x)
        for a, b in zip(*[r if isinstance(r, tuple) else (r,) for r in (expected, made)], strict=True):
            assert a.device == b.device and (a - b).abs().max() < 1e-6
"""
    )
    run(script, tmp_path)


def test_a_session_runs_on_several_devices(tmp_path):
    run(
        HEAD
        + """
with td.Graph() as graph:
    x = td.placeholder(td.float32, (None, 3))
    with td.device("cpu"):
        v = td.Variable(td.ones(3))
        here = x * 2 + v
    there = here.to("cuda")
    with td.device("cpu"):
        back = there * 3
    grad = td.gradients(back.sum(), [v])[0]
    with td.device("cuda"):
        u = td.Variable(td.zeros(3))
    write = u.assign(v + 0.0)
    train = v.assign_add(grad * 0.5)
    bad = v + u
    start = td.global_variables_initializer()
session = td.Session(graph)
session.run(start)
data = np.arange(6, dtype=np.float32).reshape(2, 3)
assert session.run(there, {x: data}).device == "cuda:0"
assert session.run(grad, {x: data}).tolist() == [6.0, 6.0, 6.0]
for k in range(3):
    a, b = session.run([back, train], {x: data})
    assert a.tolist() == ((data * 2 + 1 + 3 * k) * 3).tolist() and b.tolist() == [1.0 + 3 * (k + 1)] * 3
written = session.run(write)
assert written.device == session.run(u).device == "cuda:0" and written.tolist() == [10.0] * 3
try:
    session.run(bad)
except td.DeviceError as error:
    assert str(error).startswith("add: its tensors are on different devices: cpu, cuda:0"), error
    assert "at <string>:" in str(error), error
else:
    raise AssertionError
with td.Graph() as graph:
    start = td.zeros(2)
    last = td.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, (y + 1.0).to("cuda").to("cpu")), (0, start))[1]
assert td.Session(graph).run(last).tolist() == [3.0, 3.0]
""",
        tmp_path,
    )
