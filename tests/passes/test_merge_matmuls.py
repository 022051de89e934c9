import numpy as np

import tandem as td
import tandem.ops as F
from tandem.passes.merge_matmuls import merge_matmuls
from tests.passes.check import check_pass

mm = lambda a, b: F.Matmul()(a, b)
linear = lambda x, w: mm(x, F.Permute((1, 0))(w))
cut = lambda y, start, size: F.Slice((0, start), (1, 1), (y.shape[0], size))(y)


def parts(w, axis, size, count=2):
    starts = [tuple(i * size if a == axis else 0 for a in range(w.ndim)) for i in range(count)]
    sizes = tuple(size if a == axis else n for a, n in enumerate(w.shape))
    return [F.Slice(s, (1,) * w.ndim, sizes)(w) for s in starts]


def test_products_with_slices_of_one_matrix_are_merged():
    def wide(x, w):
        y = linear(x, F.Slice((0, 0), (1, 1), (1024, 512))(w))
        return cut(y, 0, 512), cut(y, 512, 512)

    apart = lambda x, w: tuple(linear(x, part) for part in parts(w, 0, 512))
    check_pass(merge_matmuls, apart, wide, ["f32[256,512]", "f32[1024,512]"])


def test_biases_are_merged_too():
    def wide(x, w, p, q):
        y = F.Matmul()(x, F.Slice((0, 0), (1, 1), (512, 1024))(w), F.Concat(0)(p, q))
        return cut(y, 0, 512), cut(y, 512, 512)

    def apart(x, w, p, q):
        a, b = parts(w, 1, 512)
        return F.Matmul()(x, a, p), F.Matmul()(x, b, q)

    check_pass(merge_matmuls, apart, wide, ["f32[256,512]", "f32[512,1024]", "f32[512]", "f32[512]"])


def test_separate_small_and_computed_matrices_stay_apart():
    separate = lambda x, a, b: (linear(x, a), linear(x, b))
    check_pass(merge_matmuls, separate, separate, ["f32[256,512]", "f32[512,512]", "f32[512,512]"])
    small = lambda x, w: tuple(linear(x, part) for part in parts(w, 0, 32))
    check_pass(merge_matmuls, small, small, ["f32[64,64]", "f32[64,64]"])
    computed = lambda x, w: tuple(linear(x, part) for part in parts(F.Exp()(w), 0, 512))
    check_pass(merge_matmuls, computed, computed, ["f32[256,512]", "f32[1024,512]"])


def test_merged_products_train_as_before():
    rng = np.random.default_rng(0)
    new = lambda *s: td.tensor(rng.normal(size=s).astype(np.float32) * 0.2, requires_grad=True)
    x, w, b = new(2, 64, 128), new(384, 128), new(384)

    def step(x, w, b):
        q, k, v = (td.linear(x, w[i : i + 128], b[i : i + 128]) for i in (0, 128, 256))
        return td.scaled_dot_product_attention(q, k, v).square().sum()

    both = lambda: td.value_and_grad(step, argnums=(0, 1, 2))(x, w, b)
    f = td.compile(both)
    (value, grads), (expected, expected_grads) = f(), both()
    for a, e in zip([value, *grads], [expected, *expected_grads], strict=True):
        np.testing.assert_allclose(a.detach().numpy(), e.detach().numpy(), rtol=1e-3, atol=1e-2)
    assert (128, 384) in [n.outputs[0].shape for n in f.graph().nodes if n.op.name == "matmul"]
