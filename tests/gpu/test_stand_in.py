"""What the runtime does around kernels on a CUDA device, on a stand-in that computes nothing (tests/cuda_stand_in): memory, copies,
streams, loops, profiles. Each test is a process of its own."""

import shutil

import pytest

from tests import cuda_stand_in

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

HEAD = """
import ctypes, os
import numpy as np
import tandem as td
library = ctypes.CDLL(os.environ["TANDEM_CUDA_DRIVER"])
library.stand_in_log.restype = ctypes.c_char_p
def counts():
    found = (ctypes.c_longlong * 8)()
    library.stand_in_counts(found)
    return dict(zip(("launches", "graphs", "recorded", "modules", "allocated", "early", "fills", "reads"), found))
def launched():
    return library.stand_in_log().decode().split()
from tandem.codegen.cuda import nvrtc
nvrtc.architectures = lambda: (90,)
nvrtc.version = lambda: (13, 0)
nvrtc.compile_source = lambda source, *rest: b"nothing"
"""


def run(script: str, tmp_path, **more) -> str:
    more = {"TANDEM_CACHE_DIR": str(tmp_path), "TANDEM_COMPILE_WORKERS": "0", "TANDEM_LAUNCHER": "0", **more}
    return cuda_stand_in.run(HEAD + script, **more)


def test_tensors_move_and_memory_is_counted(tmp_path):
    run(
        """
x = td.arange(12.0).reshape(3, 4)
y = x.cuda()
assert y.device == "cuda:0" and y.cpu().tolist() == x.tolist()
assert y.T.cpu().tolist() == x.T.tolist()
with td.device("cuda"):
    assert td.tensor(np.arange(3)).device == td.tensor([1]).device == "cuda:0"
before = td.cuda.memory_allocated()
z = td.empty(1 << 20, device="cuda")
assert td.cuda.memory_allocated() - before == 4 << 20
del z
assert td.cuda.memory_allocated() == before
try:
    td.empty(1 << 40, device="cuda")
except td.OutOfMemoryError as error:
    assert "cuda:0" in str(error)
else:
    raise AssertionError
""",
        tmp_path,
    )


def test_expandable_segments_join_what_was_freed(tmp_path):
    run(
        """
import random
MB = 1 << 20
def tensor(megabytes):
    return td.empty(megabytes * MB, dtype=td.uint8, device="cuda")
td.cuda.set_expandable_segments(True)
assert td.cuda.expandable_segments()
parts = [tensor(60) for _ in range(14)]  # 840 MB of 1024
assert 840 * MB <= td.cuda.memory_reserved() <= 880 * MB
del parts
large = tensor(800)  # what was freed in pieces is one now
assert td.cuda.memory_reserved() <= 880 * MB
assert td.cuda.max_memory_reserved() == td.cuda.memory_reserved()
del large
td.cuda.empty_cache()
assert td.cuda.memory_reserved() == 0 and counts()["allocated"] == 0, counts()
# every address that is handed out is mapped, is nobody else's, and keeps what is written
random.seed(0)
live = {}
for step in range(400):
    if live and (random.random() < 0.5 or sum(x.size for x, _ in live.values()) > 700 * MB):
        key = random.choice(list(live))
        x, mark = live.pop(key)
        assert x[:8].cpu().tolist() == mark and x[-8:].cpu().tolist() == mark
        del x
    else:
        x = tensor(random.choice([2, 3, 7, 30, 90]))
        mark = td.tensor([random.randrange(256) for _ in range(8)], dtype=td.uint8)
        ctypes.memmove(x.data_ptr(), mark.data_ptr(), 8)
        ctypes.memmove(x.data_ptr() + x.size - 8, mark.data_ptr(), 8)
        live[step] = (x, mark.tolist())
    if step % 50 == 49:
        td.cuda.empty_cache()
    stats = td.cuda.memory_stats()
    assert stats["live_bytes"] <= stats["reserved_bytes"] == counts()["allocated"], (stats, counts())
live.clear()
x = None
td.cuda.empty_cache()
assert td.cuda.memory_reserved() == 0
# the limit holds, and running out leaves the process usable
td.cuda.set_memory_fraction(0.25)
try:
    held = [tensor(100) for _ in range(5)]
except td.OutOfMemoryError:
    pass
else:
    raise AssertionError
assert tensor(100).size == 100 * MB
""",
        tmp_path,
    )


def test_batches_arrive_in_order_and_memory_is_used_again(tmp_path):
    run(
        """
data = td.data.TensorDataset(td.arange(20.0).reshape(10, 2), td.arange(10))
loader = td.data.DataLoader(data, batch_size=3, device="cuda")
for _ in range(2):
    seen = []
    for i, (x, y) in enumerate(loader):
        assert x.device == "cuda:0" and y.device == "cuda:0"
        seen += y.cpu().tolist()
        if i == 1:
            assert loader.state_dict()["batches"] == 2  # what the loop got, not what was sent ahead
    assert seen == list(range(10))
assert loader.epoch == 2
mixed = [{"x": td.ones(2), "name": "a", "n": 3}, {"x": td.zeros(2), "name": "b", "n": None}]
made = list(td.data.prefetch(mixed, "cuda", ahead=1))
assert [m["name"] for m in made] == ["a", "b"] and made[0]["x"].cpu().tolist() == [1.0, 1.0]
assert [m["n"] for m in made] == [3, None]
pinned = next(iter(td.data.DataLoader(data, batch_size=4, pin_memory=True)))
assert pinned[0].is_pinned() and pinned[0].device == "cpu"
x = td.ones(1000).pin_memory()
address = x.data_ptr()
del x
assert td.ones(900).pin_memory().data_ptr() == address  # pinned blocks are kept
td.cuda.empty_cache()
""",
        tmp_path,
    )


def test_dlpack_shares_device_memory(tmp_path):
    run(
        """
x = td.arange(6.0).reshape(2, 3).cuda()
assert x.__dlpack_device__() == (2, 0)
y = td.from_dlpack(x)
assert y.device == "cuda:0" and y.data_ptr() == x.data_ptr() and y.cpu().tolist() == x.cpu().tolist()
z = td.from_dlpack(x.T.__dlpack__(stream=2))
assert z.shape == (3, 2) and z.cpu().tolist() == x.cpu().T.tolist()
assert td.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
assert td.from_dlpack(x.__dlpack__(dl_device=(1, 0))).device == "cpu"
class Other:  # another library's tensor, which must be told our stream
    def __dlpack_device__(self):
        return (2, 0)
    def __dlpack__(self, **arguments):
        self.asked = arguments
        return x.__dlpack__(**arguments)
other = Other()
side = td.cuda.Stream()
with td.cuda.stream(side):
    td.from_dlpack(other)
assert other.asked["stream"] == side.handle
td.from_dlpack(other)
assert other.asked["stream"] == 1
live = td.cuda.memory_allocated()
del x
assert td.cuda.memory_allocated() == live  # y and z hold it
y.record_stream(side)  # of memory that came from elsewhere: nothing to do
del y, z
assert td.cuda.memory_allocated() < live
""",
        tmp_path,
    )


def test_loops_queue_their_bodies_and_scans_are_recorded(tmp_path):
    run(
        """
x = td.ones(5, 4, device="cuda")
fn = td.compile(lambda x, k: td.scan(lambda c, r: (c + r * k, c.exp()), td.zeros(4, device="cuda"), x))
fn(x, 0.5)
library.stand_in_clear()
carry, rows = fn(x, 0.25)
once = counts()["launches"]
names = launched()
assert carry.shape == (4,) and rows.shape == (5, 4) and rows.device == "cuda:0"
assert sum("exp" in n for n in names) == 5, names
for _ in range(3):
    fn(x, 0.125)
assert counts()["graphs"] >= 1 and counts()["recorded"] == once, counts()
loop = td.compile(lambda x: td.while_loop(lambda v: v.sum() < 10, lambda v: v * 2, x))
assert loop(x).shape == (5, 4)  # the predicate that nobody computed is false: no iteration
single = td.compile(lambda x: td.while_loop(lambda i, v: i < 10, lambda i, v: (i + 1, v * 2), (td.tensor(0), x)))
library.stand_in_clear()
single(x[0, 0])
assert any("while" in n for n in launched()), launched()
branch = td.compile(lambda x: td.cond(x.sum() > 0, lambda v: v.exp(), lambda v: v.cos(), x))
library.stand_in_clear()
branch(x)
assert any("cos" in n for n in launched()) and not any("exp" in n for n in launched())
w = td.ones(4, 4, device="cuda", requires_grad=True)
td.compile(lambda: td.scan(lambda c, r: (td.tanh(c @ w + r), c), td.zeros(4, device="cuda"), x)[1].sum())().backward()
assert w.grad.shape == (4, 4) and w.grad.device == "cuda:0"
""",
        tmp_path,
    )


def test_a_profile_has_steps_of_the_device_and_programs_run_step_by_step(tmp_path):
    run(
        """
x = td.ones(64, 64, device="cuda")
fn = td.compile(lambda x: (td.softmax(x @ x, -1) * 2).sum())
for _ in range(5):
    fn(x)
replayed = counts()["graphs"]
assert replayed > 0
with td.profile() as p:
    fn(x)
    x.cpu()
assert counts()["graphs"] == replayed
rows = {row.name: row for row in p.rows() if row.device == "cuda:0"}
assert rows["matmul"].steps == 1 and "softmax" in rows, rows
assert any(s.kind == "copy" and s.bytes == 64 * 64 * 4 for s in p.steps)
assert all(p.start - 10**6 <= s.start <= p.end + 10**6 for s in p.steps)
events = p.trace()["traceEvents"]
assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"cpu", "cuda:0"}
assert sum(e["ph"] == "s" for e in events) == sum(s.device != "cpu" for s in p.steps)
fn(x)
assert counts()["graphs"] == replayed + 1
with td.cuda.profile() as q:
    x.exp()
assert q.rows[0][1] == 1 and "exp" in str(q)
assert td.benchmark(td.exp, x, seconds=0.01).min > 0
""",
        tmp_path,
    )


def test_programs_are_found_on_disk_by_a_second_process(tmp_path):
    script = """
compiled = []
def compile_source(source, *rest):
    compiled.append(source)
    return b"nothing"
nvrtc.compile_source = compile_source
w = td.ones(8, 8, device="cuda")
fn = td.compile(lambda x: td.scan(lambda c, r: (c + r, (c * r).sum()), td.zeros(8, device="cuda"), (x.exp() + 1) @ w)[1].sum())
fn(td.ones(3, 8, device="cuda"))
print(len(compiled), fn.explain())
"""
    first = run(script, tmp_path)
    second = run(script, tmp_path)
    assert not first.startswith("0 ")
    assert second.startswith("0 "), second
    assert "load" in second, second


def test_what_has_no_kernel_goes_through_the_host(tmp_path):
    run(
        """
def there(x):
    return td.tensor(x, device="cuda")
a = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
spd = a @ a.swapaxes(-1, -2) + 4 * np.eye(4, dtype=np.float32)
np.testing.assert_allclose(td.linalg.eigvalsh(there(spd)).cpu().numpy(), np.linalg.eigvalsh(spd), rtol=1e-5)
lu, pivots = td.linalg.lu_factor(there(a.swapaxes(-1, -2)))
expected = td.linalg.lu_factor(td.tensor(a.swapaxes(-1, -2)))
np.testing.assert_allclose(lu.cpu().numpy(), expected[0].numpy(), rtol=1e-5)
assert pivots.cpu().tolist() == expected[1].tolist()
np.testing.assert_allclose(td.fft.fft(there(a + 0j)).cpu().numpy() * 0, 0)  # made of kernels and lines
u, s, v = td.linalg.svd(there(a))
assert s.device == "cuda:0"
np.testing.assert_allclose(s.cpu().numpy(), np.linalg.svd(a)[1], rtol=1e-4)
np.testing.assert_allclose(td.special.bessel_j0(there(a[0])).cpu().numpy(), td.special.bessel_j0(td.tensor(a[0])).numpy())
assert td.special.legendre_polynomial_p(there(a[0]), there(np.full((4, 4), 3.0, np.float32))).shape == (4, 4)
""",
        tmp_path,
    )


NET = """
from tandem import nn
from tandem.nn import functional as F
model = nn.Sequential(*[m for _ in range(8) for m in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())], nn.Flatten(),
                      nn.Linear(64, 5)).to("cuda")
optimizer = td.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
y = td.zeros(2, dtype=td.int64, device="cuda")
seen = []
def step(x, twice=False, look=False):
    seen.append(counts()["graphs"])
    loss = F.cross_entropy(model(x), y)
    seen.append(counts()["graphs"])
    if twice:
        loss = loss * 2
    if look:
        loss.item()
    loss.backward()
    seen.append(counts()["graphs"])
    optimizer.step()
    optimizer.zero_grad()
    return loss
compiled = td.compile(step)
def run(**options):
    seen.clear()
    before = counts()
    compiled(td.ones(2, 4, 4, 4, device="cuda"), **options)
    after = counts()
    return {k: after[k] - before[k] for k in after}, [n - before["graphs"] for n in seen]
"""


def test_devices_begin_while_calls_are_noted(tmp_path):
    run(
        NET
        + """
for _ in range(5):
    run()
made, (first, forward, backward) = run()
assert made["launches"] == 1 and made["graphs"] >= 3  # one fills x
assert first == 0 and forward >= made["graphs"] - 2 and backward == made["graphs"] - 1  # what writes parameters comes at the end
""",
        tmp_path,
    )


def test_what_was_begun_in_vain_is_forgotten(tmp_path):
    run(
        NET
        + """
for _ in range(6):
    run()
usual, _ = run()
other, begun = run(twice=True)  # another program, run launch by launch
assert begun[1] >= 1 and other["launches"] > 20
looked, _ = run(look=True)
assert looked["launches"] > 20
again, _ = run()
assert again["launches"] == 1 and again["graphs"] == usual["graphs"]
back, begun = run()
assert back == usual and begun[2] == usual["graphs"] - 1
for _ in range(6):  # never the same twice: no more guesses are made
    run(twice=True), run()
run(twice=True)
_, begun = run()
assert begun == [0, 0, 0]
""",
        tmp_path,
    )


def test_nothing_is_begun_if_it_is_switched_off(tmp_path):
    run(NET + "for _ in range(6): run()\nassert run()[1] == [0, 0, 0]", tmp_path, TANDEM_AHEAD="0")


def test_gradients_of_scores_take_their_place(tmp_path):
    run(
        """
x = td.ones(512, 64, device="cuda").requires_grad_()
w = td.ones(64, 5000, device="cuda").requires_grad_()
y = td.zeros(512, dtype=td.int64, device="cuda")
def step():
    loss = td.nn.functional.cross_entropy(x @ w, y)
    loss.backward()
    x.grad = w.grad = None
    return loss
compiled = td.compile(step)
compiled()
scores = 512 * 5000 * 4
assert scores < compiled.memory()["peak"] < 1.5 * scores
""",
        tmp_path,
    )


def test_gradients_of_scores_of_sequences_take_their_place(tmp_path):
    run(
        """
table, w = (td.ones(n, 64, device="cuda").requires_grad_() for n in (5000, 5001))
x = y = td.zeros(8, 64, dtype=td.int64, device="cuda")
def step():
    scores = td.nn.functional.linear(td.nn.functional.embedding(x, table), w)
    loss = td.nn.functional.cross_entropy(scores.reshape(-1, 5001), y.reshape(-1))
    loss.backward()
    table.grad = w.grad = None
    return loss
y = y + 1
compiled = td.compile(step)
compiled()
scores = 512 * 5001 * 4
assert scores < compiled.memory()["peak"] < 1.5 * scores, compiled.memory()
""",
        tmp_path,
    )


def test_gradients_of_embeddings_are_added_where_their_zeros_lie(tmp_path):
    run(
        """
table = td.ones(5000, 128, device="cuda").requires_grad_()
i = td.zeros(64, dtype=td.int64, device="cuda")
def step():
    table[i].sin().sum().backward()
    with td.no_grad(): table.sub_(table.grad)
    table.grad = None
compiled = td.compile(step)
compiled()
gradient = 5000 * 128 * 4
assert gradient <= compiled.memory()["peak"] < 1.5 * gradient, compiled.memory()
""",
        tmp_path,
    )


def test_zeros_for_gradients_are_not_there_before_they_are_needed(tmp_path):
    run(
        """
table = td.ones(20000, 64, device="cuda").requires_grad_()
layers = [td.ones(64, 64, device="cuda").requires_grad_() for _ in range(24)]
i = td.zeros(10000, dtype=td.int64, device="cuda")
def step():
    x = table[i]
    for w in layers: x = (x @ w).sin()
    x.sum().backward()
    with td.no_grad():
        for p in [table, *layers]:
            p.sub_(p.grad)
            p.grad = None
compiled = td.compile(step)
peaks = []
for _ in range(4):
    td.cuda.reset_peak_memory_stats()
    compiled()
    peaks.append(td.cuda.max_memory_allocated())
assert max(peaks) <= 1.02 * peaks[1], peaks
""",
        tmp_path,
    )


def test_graphs_of_one_size_are_not_run_for_another(tmp_path):
    run(
        """
w = td.zeros(4, device="cuda", requires_grad=True)
@td.compile
def step(x):
    loss = (x * w).sum()
    loss.backward()
    with td.no_grad():
        w.sub_(w.grad)
        w.grad = None
    return loss
xs = []
def recorded(n):
    xs.append(td.ones(n, 4, device="cuda"))
    before = counts()
    step(xs[-1])
    after = counts()
    return [after[k] - before[k] > 0 for k in ("launches", "recorded", "graphs")]
plain, new, again = [True, False, False], [False, True, True], [False, False, True]
assert [recorded(8) for _ in range(4)] == [plain, plain, new, again]
assert recorded(5) == plain and recorded(8) == again  # a short batch at the end of an epoch
assert [recorded(5) for _ in range(3)] == [plain, new, again]
""",
        tmp_path,
    )


def test_kernels_may_be_set_up_while_earlier_ones_run(tmp_path):
    run(
        """
x = td.ones(4, device="cuda")
y = x + 1
before = counts()
y = x + 1
y = td.ones(8, 8, device="cuda") @ td.ones(8, 8, device="cuda")
after = counts()
assert after["early"] - before["early"] == after["launches"] - before["launches"] >= 2, (before, after)
""",
        tmp_path,
    )


def test_small_fills_in_graphs_are_kernels(tmp_path):
    # The stand-in's graphs have a fill of 4 bytes between two kernels, and one of 1 MB that stays.
    run(
        """
@td.compile
def f(x):
    return (x * 2).sum()
x = td.ones(8, 4, device="cuda")
for _ in range(4):
    f(x)
assert counts()["fills"] == 1 and counts()["graphs"] == 2, counts()
""",
        tmp_path,
    )


def test_deferred_runs_are_where_their_nodes_must_be(tmp_path):
    run(
        """
with td.Graph() as graph:
    x = td.placeholder(td.float32, (None, 3))
    with td.device("cuda"):
        w = td.Variable(td.ones(3, 2))
        y = (x @ w).relu()
        update = w.assign_add(td.ones(3, 2))
        drawn = td.rand(3, generator=td.Generator(7))
    with td.device("cpu"):
        here = x * 2
    start = td.global_variables_initializer()
    both = y.sum() + here.sum()
session = td.Session(graph)
session.run(start)
assert session.run(w).device == "cuda:0"
for n in (2, 5):
    a, b = session.run([y, update], {x: np.ones((n, 3), np.float32)})  # the feed comes from the CPU
    assert a.device == b.device == "cuda:0" and a.shape == (n, 2)
assert session.run(here, {x: td.ones(1, 3).cuda()}).device == "cpu"
assert [session.run(drawn).device for _ in range(2)] == ["cuda:0"] * 2
assert {node.device for node in session.compiled_graph([y, update], [x]).nodes if node.op.name == "matmul"} == {"cuda:0"}
assert session.run(both, {x: np.ones((1, 3))}).device == "cuda:0"  # a single element of the host goes along
assert launched()

@td.compile
def f(x):
    with td.device("cuda"):
        y = td.ones(3) + x
    return y * 2

f(td.zeros(3).cuda())
devices = {node.op.name: node.device for node in f.graph().nodes}
assert devices["add"] == "cuda:0" and devices["mul"] is None, devices
""",
        tmp_path,
    )


def test_kernels_over_rows_overwrite_their_operand_in_the_last_pass_alone(tmp_path):
    run(
        """
from tandem.codegen.buffer import root_of
from tandem.codegen.schedule import KernelStep
x, w, v = (td.empty(*shape, device="cuda") for shape in ((512, 32), (32, 4096), (4096, 8)))
def early(x, w, v):
    s = x @ w
    a = s - td.amax(s, 1, keepdim=True)
    return a @ v, (s * td.exp(a).sum(1, keepdim=True)).half() @ v.half()
def late(x, w, v):
    s = x @ w
    a = td.exp(s - td.amax(s, 1, keepdim=True))
    return (a / a.sum(1, keepdim=True)) @ v
def written_over(f):
    f = td.compile(f)
    f(x, w, v)
    steps = [s for s in f.graph().schedule.steps if isinstance(s, KernelStep) and "sum" in s.kernel.name]
    assert len(steps) == 1, steps
    roots = [id(root_of(b)) for b in steps[0].buffers]
    return len(roots) - len(set(roots)), len(steps[0].writes)
assert written_over(late) == (1, 1), written_over(late)
assert written_over(early) == (0, 2), written_over(early)  # the last pass reads the scores once more
""",
        tmp_path,
    )


PRODUCTS = """
from tandem.codegen.cuda import libraries
begun, real = [], td._runtime.cuda_open_products_ahead
def open_ahead(*arguments):
    begun.append(arguments)
    real(*arguments)
td._runtime.cuda_open_products_ahead = open_ahead
x = td.ones(128, 128, device="cuda")
"""


def test_cublas_opens_while_a_program_that_multiplies_is_traced(tmp_path):
    run(
        PRODUCTS
        + """
td.compile(lambda x: x + 1)(x)
assert not begun
step = td.compile(lambda x: (x @ x, x.double() @ x.double()))
step(x)
step(x)
assert [(device, dtype) for device, dtype, _ in begun] == [(0, td.float32.code)], begun
child = os.fork()
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""",
        tmp_path,
    )
    run(PRODUCTS + "x @ x\nassert not begun\ntd.compile(lambda x: x @ x)(x)", tmp_path)  # open by then


def test_a_process_may_end_while_cublas_is_opened(tmp_path):
    run(
        PRODUCTS
        + """
libraries.open_products_ahead(0, td.bfloat16)
assert len(begun) == 1
""",
        tmp_path,
    )


def test_a_missing_cublas_is_told_by_the_product(tmp_path):
    told = run(
        PRODUCTS
        + """
libraries.candidates = lambda name: ("/nowhere/libcublasLt.so",)
for f in (td.compile(lambda x: x @ x), lambda x: x @ x):
    try:
        f(x)
    except td.DeviceError as error:
        print(str(error).replace(chr(10), " "))
""",
        tmp_path,
    )
    lines = told.splitlines()
    assert len(lines) == 2 and all("libcublasLt cannot be opened" in line and "fix:" in line for line in lines), told


def test_flexible_attention_is_composed_of_what_devices_have(tmp_path):
    run(
        """
from tandem.nn.attention.flex_attention import create_block_mask, flex_attention
q, k, v = (td.ones(2, heads, 16, 16, device="cuda", requires_grad=True) for heads in (4, 2, 2))
bias = td.zeros(4, 16, 16, device="cuda", requires_grad=True)
attend = td.nn.functional.scaled_dot_product_attention
block = create_block_mask(lambda b, h, i, j: i >= j, None, None, 16, 16, device="cuda")
for step in (
    lambda: attend(q, k, v, enable_gqa=True),
    lambda: attend(q, k, v, bias, enable_gqa=True),
    lambda: attend(q, k, v, dropout_p=0.5, enable_gqa=True),
    lambda: flex_attention(q, k, v, lambda s, b, h, i, j: s + bias[h, i, j], block, enable_gqa=True),
):
    for run in (step, td.compile(step)):
        before = counts()["launches"]
        out = run()
        out.sum().backward()
        assert out.shape == (2, 4, 16, 16) and q.grad.shape == q.shape and k.grad.shape == k.shape
        assert counts()["launches"] > before or counts()["graphs"]
assert bias.grad.shape == bias.shape
""",
        tmp_path,
    )
