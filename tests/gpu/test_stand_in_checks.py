"""Checks of indices and recordings of programs, on the stand-in: what is launched with which arguments."""

import shutil

import pytest

from tests.gpu.test_stand_in import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")


def test_kernels_that_write_what_existed_before_look_at_the_flag(tmp_path):
    run(
        """
from tandem import nn
sources = {}
def compile_source(source, capability, name, *rest):
    sources[name] = source[source.index("struct Arguments"):]
    return b"nothing"
nvrtc.compile_source = compile_source
def guarded(call):
    sources.clear()
    call()
    return {name: "u64 failed; }" in source for name, source in sources.items()}
x, y, i = td.ones(64, 4, device="cuda"), td.ones(64, 4, device="cuda"), td.tensor([1, 2], device="cuda")
assert set(guarded(lambda: x * y + 1.5).values()) == {False}
assert guarded(lambda: x.mul_(y)) == {"mul": True}
assert "if (!failed)" in sources["mul"]
found = guarded(lambda: x.__setitem__(i, 2.0))
assert not found.pop("check_index") and any(found.values()), found
assert "__syncthreads_or(failed)" in "".join(sources.values())
model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(8, 8)).to("cuda")
optimizer = td.optim.SGD(model.parameters(), lr=0.1)
@td.compile
def step(i):
    model(i).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
found = guarded(lambda: step(i))
assert True in found.values() and False in found.values(), found
assert any("struct Launches" in s and "u64 failed; }" in s for s in sources.values())  # updates of several parameters in one launch
""",
        tmp_path,
    )


def test_every_size_that_comes_again_has_a_recording(tmp_path):
    run(
        """
fn = td.compile(lambda x: (td.softmax(x @ x.T, -1) * 2).sum(0))
sizes = list(range(65, 75))
inputs = {n: td.ones(n, 4, device="cuda") for n in sizes}
for n in sizes:
    for _ in range(4):
        fn(inputs[n])
def launched_by(n):
    before = counts()
    fn(inputs[n])
    after = counts()
    return after["graphs"] - before["graphs"], after["launches"] - before["launches"]
for _ in range(2):
    for n in sizes:  # taking turns
        graphs, launches = launched_by(n)
        assert graphs >= 1 and launches == 0, (n, graphs, launches)
# the ones used least recently go
for n in range(75, 87):
    inputs[n] = td.ones(n, 4, device="cuda")
    for _ in range(4):
        fn(inputs[n])
assert launched_by(86)[0] >= 1 and launched_by(74)[0] >= 1
assert launched_by(65)[0] == 0
""",
        tmp_path,
    )


def test_recordings_of_one_program_share_their_memory(tmp_path):
    run(
        """
fn = td.compile(lambda x: td.softmax(x @ x.T, -1).exp().sum())
def grown(n):
    x = td.ones(n, 64, device="cuda")
    before = td.cuda.memory_reserved()
    for _ in range(5):
        fn(x)
    return td.cuda.memory_reserved() - before
first = grown(2048)
assert first > 0
assert sum(grown(n) for n in (2047, 2046, 2045, 2044)) <= first
""",
        tmp_path,
    )


def test_a_forked_child_is_told_of_the_fork(tmp_path):
    run(
        """
x = td.ones(3, device="cuda")
def said(call):
    try:
        call()
    except td.DeviceError as error:
        return str(error)
child = os.fork()
if child == 0:
    first, second = said(lambda: td.ones(3, device="cuda")), said(x.cpu)
    told = all(text and "was forked from one that had used CUDA" in text and "spawn" in text for text in (first, second))
    os._exit(0 if told and not td.cuda.is_available() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert x.cpu().shape == (3,)
""",
        tmp_path,
    )


MODEL = """
from tandem import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList([nn.Embedding(10, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU())])
    def forward(self, i):
        return self.parts[1](self.parts[0](i))
model, i = Net().to("cuda"), td.tensor([1, 2], device="cuda")
library.stand_in_complain.argtypes = [ctypes.c_longlong] * 3
def error_of(call):
    library.stand_in_complain(12, 10, 0)
    try:
        for _ in range(3):
            call()
        td.cuda.synchronize()
    except td.IndexRangeError as error:
        return error
"""


def test_late_errors_name_the_module_that_had_the_index(tmp_path):
    run(
        MODEL
        + """
def names_it(error):
    text = str(error)
    assert "Net.parts.0: embedding: index 12 is out of range for axis 0 with size 10" in text, text
    assert "in Embedding(10, 8)" in text, text
names_it(error_of(lambda: model(i)))
step = td.compile(lambda i: model(i).sum())
names_it(error_of(lambda: step(i)))
for _ in range(5):
    step(i)
before = counts()["graphs"]
names_it(error_of(lambda: step(i)))
assert counts()["graphs"] > before
class Other(nn.Module):  # which only happens to run when the error shows
    def forward(self, x):
        return x.cpu()
def later():
    x = model(i)
    Other()(x)
names_it(error_of(later))
""",
        tmp_path,
    )


def test_late_errors_outside_of_modules_name_none(tmp_path):
    run(
        MODEL
        + """
class Other(nn.Module):
    def forward(self, x):
        return x.cpu()
def later():
    x = td.ones(10, 8, device="cuda")[i]
    Other()(x)
error = error_of(later)
assert "index 12" in str(error) and error.module is None and "Other" not in str(error), str(error)
""",
        tmp_path,
    )


def test_a_second_process_that_finds_the_program_on_disk_names_its_own_modules(tmp_path):
    script = """
step = td.compile(lambda i: model(i).sum())
text = str(error_of(lambda: step(i)))
assert f"{type(model).__name__}.parts.0: embedding" in text, text
"""
    run(MODEL + script, tmp_path)
    run(MODEL.replace("Net", "Another") + script, tmp_path)
