"""Functions as C99: what a compiler makes of the files computes what the function does."""

from __future__ import annotations

import re
import subprocess

import numpy as np
import pytest

import tandem as td
from tandem import nn
from tandem.errors import UnsupportedError, ValueRangeError
from tests.export.c99.programs import Small
from tests.export.c_programs import COMPILER, check, compile_program, results_of

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


@needs_compiler
def test_a_convolution_network_gives_what_it_gives_here(tmp_path):
    model = Small().eval()
    x, y = td.randn(1, 2, 7, 6), td.randn(1, 2, 7, 6)
    made = check(model, x, tmp_path, others=(y,), name="small")
    text = "".join((tmp_path / f).read_text() for f in ("small.c", "small.h"))
    assert "malloc" not in text and "batch" not in text, "no memory is taken, and batch norm is folded into the weights"
    assert set(re.findall(r"#include <(\w+)\.h>", text)) == {"math", "stdbool", "stdint"}
    assert f"#define SMALL_ARENA_BYTES {made.arena_bytes}\n" in text and 0 < made.arena_bytes < 2000
    assert (
        str(made) == f"small: arena {made.arena_bytes} bytes, weights {made.weight_bytes} bytes, 5 files in {tmp_path}"
    )


@needs_compiler
def test_a_transformer_runs_with_weights_in_a_file_and_refuses_indices_out_of_range(tmp_path):
    model = td.models.GPT2(vocabulary=20, context=8, layers=1, heads=2, width=8).eval()
    tokens = td.tensor([[3, 1, 4, 1, 5]])
    made = check(model, tokens, tmp_path, others=(td.tensor([[9, 2, 6, 5, 19]]),), weights="binary")
    assert (tmp_path / "model_weights.bin").stat().st_size == made.weight_bytes
    (tmp_path / "in.bin").write_bytes(np.array([3, 1, 20, 1, 5]).tobytes())
    assert subprocess.run([tmp_path / "program", "in.bin", "out.bin"], cwd=tmp_path).returncode == 1
    done = subprocess.run([tmp_path / "program"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and re.match(rf"arena: {made.arena_bytes} bytes, weights: ", done.stdout)


def test_what_has_no_c_form_is_named_with_its_line():
    with pytest.raises(UnsupportedError, match=r"svd.* has no C routine\n  fix: "):
        td.export.c(lambda x: td.linalg.svd(x)[1], td.eye(3), "/nowhere")
    with pytest.raises(UnsupportedError, match="'x' is complex64"):
        td.export.c(lambda x: x, td.ones(2, dtype=td.complex64), "/nowhere")
    with pytest.raises(ValueRangeError, match="'a-b' is no name of a C function\n  fix: name='a_b'"):
        td.export.c(td.relu, td.ones(2), "/nowhere", name="a-b")
    with pytest.raises(ValueRangeError, match="weights is 'file'"):
        td.export.c(td.relu, td.ones(2), "/nowhere", weights="file")


F = td.nn.functional


@needs_compiler
def test_integers_made_of_counters_are_as_wide_as_they_should_be(tmp_path):
    """Counters are ints in C; what is computed from them may not fit into one, or be shifted by more bits than one has."""

    def fn(x):
        at = td.arange(4)
        return x + at * 7_000_000_000, at**3 * 2_000_000_000, (at - 5) >> 40, x.float()[at - 2]

    check(fn, (td.tensor([1, 2, 3, 4]),), tmp_path)


@needs_compiler
def test_integers_divided_by_tensors_and_by_zero(tmp_path):
    a, b = td.tensor([-7, 0, 5]), td.tensor([3, -2, 7])
    made = check(lambda a, b: (a // b, a % b), (a, b), tmp_path)
    with pytest.raises(AssertionError):
        results_of(made.folder / "program", (a, b * 0), (a, a))


SWEEP = {
    "mlp": lambda: (nn.Sequential(nn.Linear(10, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 4)), td.randn(3, 10)),
    "lenet": lambda: (td.models.LeNet(), td.randn(2, 1, 28, 28)),
    "mobilenet": lambda: (td.models.MobileNetV2(num_classes=5, width=0.25), td.randn(1, 3, 32, 32)),
    "gpt": lambda: (td.models.GPT2(vocabulary=50, context=32, layers=2, heads=4, width=32), td.arange(20).reshape(2, 10)),
    "lstm": lambda: (nn.LSTM(4, 6, num_layers=2, bidirectional=True), td.randn(5, 2, 4)),
    "gru": lambda: (nn.GRU(4, 6, batch_first=True), td.randn(2, 5, 4)),
    "conv1d": lambda: (nn.Conv1d(3, 8, 4, stride=2, padding=3, dilation=2), td.randn(2, 3, 21)),
    "conv3d": lambda: (nn.Conv3d(2, 6, 3, padding=1), td.randn(1, 2, 4, 5, 6)),
    "depthwise": lambda: (nn.Conv2d(6, 6, 3, groups=6, stride=2, padding=1), td.randn(1, 6, 9, 35)),
    "groups": lambda: (nn.Conv2d(8, 12, 3, groups=2, padding=(2, 0)), td.randn(2, 8, 9, 7)),
    "transposed": lambda: (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), td.randn(1, 4, 5, 1)),
    "pools": lambda: (lambda x: (F.max_pool2d(x, 3, 2, 1, return_indices=True), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
                                 F.avg_pool2d(x, 2, count_include_pad=False), F.adaptive_avg_pool2d(x, (3, 2)),
                                 F.adaptive_max_pool2d(x, 2)), td.randn(2, 3, 9, 8)),
    "attention": lambda: (lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
                          (td.randn(2, 3, 5, 4), td.rand(5, 5) > 0.3)),
    "half": lambda: (nn.Sequential(nn.Linear(9, 20), nn.ReLU(), nn.Linear(20, 3)).half(), td.randn(2, 9).half()),
    "bfloat16": lambda: (nn.Sequential(nn.Conv2d(3, 5, 3, padding=1), nn.Flatten()).bfloat16(), td.randn(1, 3, 6, 6).bfloat16()),
    "double": lambda: (lambda a, b: (a @ b, a @ b.mT.contiguous().mT), (td.randn(4, 7, 9).double(), td.randn(4, 9, 5).double())),
    "integers": lambda: (lambda a, b: (a @ b, a.cumsum(0), a // 3, a.max()),
                         (td.arange(12).reshape(3, 4), td.arange(8).reshape(4, 2))),
    "transposed_product": lambda: (lambda a, b: a @ b.T + 1, (td.randn(5, 19), td.randn(7, 19))),
    "sorting": lambda: (lambda x: (x.sort(-1), x.topk(3, 0), x.sort(1, descending=True), x.argmax(1), x.median()), td.randn(5, 7)),
    "scatter": lambda: (lambda x, i, v: (x.index_add(0, i, v), x.index_copy(0, i[:2], v[:2]), x[i], td.cat([x, v], 0)),
                        (td.randn(5, 3), td.tensor([4, 0, 4]), td.randn(3, 3))),
    "cumulative": lambda: (lambda x: (x.cumsum(1), x.cumprod(0), x.logsumexp(1)), td.randn(4, 6)),
    "math": lambda: (lambda x: (x.exp(), x.sin() * 1e3, td.erf(x), x.abs().log1p(), td.lgamma(x.abs() + 1), x.var(0)),
                     td.randn(6, 7)),
    "output_twice": lambda: (lambda x: (x, x, x.T, x.T + 0, x[1:], td.ones(2)), td.randn(3, 4)),
    "embedding": lambda: (nn.Embedding(9, 4), td.tensor([[1, 8], [0, 3]])),
    "empty": lambda: (lambda x: (x * 2, x.sum(0)), td.zeros(0, 3)),
    "scalar": lambda: (lambda x: x * x, td.tensor(3.0)),
}  # fmt: skip


@needs_compiler
@pytest.mark.slow
@pytest.mark.parametrize("name", SWEEP)
def test_results_are_those_of_this_library(name, tmp_path):
    td.manual_seed(0)
    fn, args = SWEEP[name]()
    fn = fn.eval() if isinstance(fn, nn.Module) else fn
    check(fn, args, tmp_path, rtol=2e-4, atol=2e-5, weights="binary", flags=["-O1", "-fsanitize=address,undefined"])


@needs_compiler
@pytest.mark.slow
def test_lenet_is_small(tmp_path):
    made = td.export.c(td.models.LeNet().eval(), td.zeros(1, 1, 28, 28), tmp_path)
    subprocess.run([COMPILER, "-std=c99", "-O3", "-c", "model.c"], cwd=tmp_path, check=True)
    text = int(subprocess.run(["size", "model.o"], cwd=tmp_path, capture_output=True, text=True).stdout.split()[6])
    assert text < 64 << 10 and made.arena_bytes < 100 << 10


@needs_compiler
def test_numbers_may_be_results(tmp_path):
    made = td.export.c(lambda x: (x * 2, 3), td.ones(2), tmp_path)
    assert [2.0, 2.0] == results_of(compile_program(made), (td.ones(2),), (td.ones(2), td.tensor(3)))[0].tolist()


@needs_compiler
def test_complex_numbers_and_fourier_transforms_inside(tmp_path):
    def fn(x):
        spectrum = td.fft.rfft(x) * td.tensor([1 + 2j, 0.5j, -1.0, 1j], dtype=td.complex64)
        return td.fft.irfft(spectrum, n=7), abs(td.fft.fft2(x)), td.exp(spectrum).imag

    check(fn, td.randn(3, 7), tmp_path, others=(td.randn(3, 7),), rtol=2e-4, atol=1e-5)
