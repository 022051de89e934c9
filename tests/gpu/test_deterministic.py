"""On a CUDA device the same call gives the same bits, and with deterministic algorithms no measurement chooses how."""

import numpy as np
import pytest

import tandem as td

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]

nnf = td.nn.functional


def _floats(*shape):
    return td.tensor(np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32))


ROWS = td.tensor(np.random.default_rng(0).integers(0, 50, 9000))
CASES = {
    "sum": (lambda x: x.sum(0), (_floats(10_001, 30),)),
    "matmul": (td.matmul, (_floats(300, 5000), _floats(5000, 64))),
    "convolution": (lambda x, w: nnf.conv2d(x, w, padding=1), (_floats(8, 32, 28, 28), _floats(32, 32, 3, 3))),
    "depthwise convolution": (lambda x, w: nnf.conv2d(x, w, groups=32), (_floats(8, 32, 28, 28), _floats(32, 1, 3, 3))),
    "dilated convolution": (lambda x, w: nnf.conv2d(x, w, dilation=2), (_floats(8, 16, 9, 9), _floats(16, 16, 3, 3))),
    "convolution of volumes": (nnf.conv3d, (_floats(2, 8, 12, 12, 12), _floats(16, 8, 3, 3, 3))),
    "attention": (nnf.scaled_dot_product_attention, (_floats(2, 4, 333, 64),) * 3),
    "lookup": (lambda x: x[ROWS.to(x.device)], (_floats(50, 40),)),
    "index_add": (lambda x, y: td.index_add(x, 0, ROWS.to(x.device), y), (_floats(50, 40), _floats(9000, 40))),
    "cumsum": (lambda x: td.cumsum(x, -1), (_floats(3, 100_001),)),
}


def _bits(f, operands):
    xs = [x.to("cuda").requires_grad_() for x in operands]
    y = f(*xs)
    return [t.detach().cpu().numpy().tobytes() for t in (y, *td.autograd.grad((y * y).sum(), xs))]


@pytest.mark.parametrize("name", CASES)
def test_results_and_gradients_are_the_same_bits_again(name):
    td.use_deterministic_algorithms(True)
    try:
        with td.switches(TUNE=1):
            tuned = [_bits(*CASES[name]) for _ in range(5)]
        assert all(bits == tuned[0] for bits in tuned)
        assert _bits(*CASES[name]) == tuned[0]
    finally:
        td.use_deterministic_algorithms(False)
