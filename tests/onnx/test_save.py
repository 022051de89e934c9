"""Functions and modules as ONNX files: what is written is read again, and run by onnxruntime where that is installed."""

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tandem import models
from tests.onnx.writers.roundtrip import check_save

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")


def kinds(proto) -> list[str]:
    return [node.op_type for node in proto.graph.node]


td.manual_seed(3)


SMALL = {
    "LeNet": (lambda: models.LeNet(), lambda: (td.randn(2, 1, 28, 28),)),
    "GPT2": (lambda: models.GPT2(100, 32, 2, 2, 32), lambda: (td.randint(0, 100, (2, 16)),)),
    "BERT": (lambda: models.BERT(100, 32, 2, 2, 64, 64), lambda: (td.randint(0, 100, (2, 16)),)),
    "ViT": (lambda: models.ViT(32, 8, 32, 2, 2, 64, 10), lambda: (td.randn(2, 3, 32, 32),)),
    "NCF": (lambda: models.NCF(50, 60, 8, (16, 8)), lambda: (td.randint(0, 50, (4,)), td.randint(0, 50, (4,)))),
    "LSTMLanguageModel": (lambda: models.LSTMLanguageModel(50, 16, 2), lambda: (td.randint(0, 50, (3, 7)),)),
}


LARGE = {
    "resnet18": (models.resnet18, lambda: (td.randn(1, 3, 64, 64),)),
    "MobileNetV2": (models.MobileNetV2, lambda: (td.randn(1, 3, 64, 64),)),
    "VGG": (lambda: models.VGG(11, width=64), lambda: (td.randn(1, 3, 64, 64),)),
    "InceptionV3": (models.InceptionV3, lambda: (td.randn(1, 3, 299, 299),)),
    "AlexNet": (models.AlexNet, lambda: (td.randn(1, 3, 224, 224),)),
}


@pytest.mark.parametrize("name", SMALL)
def test_models(name):
    make, arguments = SMALL[name]
    check_save(make().eval(), *arguments())


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_large_models(name):
    make, arguments = LARGE[name]
    check_save(make().eval(), *arguments(), tolerance=1e-4)


def test_batch_norm_goes_into_the_convolution():
    model = td.nn.Sequential(td.nn.Conv2d(3, 4, 3), td.nn.BatchNorm2d(4), td.nn.ReLU())
    model(td.randn(8, 3, 8, 8))  # statistics other than 0 and 1
    model.eval()
    assert ["Conv", "Relu"] == kinds(check_save(model, td.randn(2, 3, 8, 8)))
    assert "Mul" in kinds(check_save(model, td.randn(2, 3, 8, 8), fold=False))


def test_weights_keep_their_names():
    proto = td.onnx.save(td.nn.Sequential(td.nn.Linear(3, 2)), td.ones(4, 3))
    assert {"0.weight", "0.bias"} == {t.name for t in proto.graph.initializer}


def test_functions_of_many_kinds():
    def mixed(x):
        return (
            td.sort(x, axis=-1) + td.cumsum(x, 1), td.roll(x, 1, 1), td.tril(x), td.logsumexp(x, -1), td.var(x, axis=1),
            x[:, ::2], x.flip(1), F.pad(x, (1, 2)), td.einsum("ij,kj->ik", x, x), td.expm1(x), td.log1p(x.abs()),
            td.atan2(x, x + 1), x // 0.5, x % 0.7, td.argmax(x, axis=1), (x > 0).any(axis=1), x[:, [2, 0]],
        )  # fmt: skip

    check_save(mixed, td.randn(5, 5), tolerance=1e-4)


def test_sizes_that_are_computed():
    def pairs(x):
        n, m = x.shape
        return td.zeros(2 * n, m) + td.concat([x, x]), x.reshape(n * m), x.sum() / n

    check_save(pairs, td.randn(1, 3))


def test_several_axes_of_any_size():
    proto = td.onnx.save(lambda a: td.softmax(a, -1) * a.shape[1], td.randn(2, 3), dynamic={"x": (0, 1)})
    x = td.randn(4, 5)
    np.testing.assert_allclose(td.onnx.load(proto)(x).numpy(), (td.softmax(x, -1) * 5).numpy(), rtol=1e-5)


def test_random_numbers_are_refused():
    with pytest.raises(td.UnsupportedError, match=r"samples random numbers(.|\n)*model\.eval\(\)"):
        td.onnx.save(td.nn.Dropout(0.5).train(), td.ones(2, 3))


def test_an_operator_without_a_counterpart_is_named():
    with pytest.raises(td.UnsupportedError, match="onnx svd: it cannot be written with operators of ONNX's"):
        td.onnx.save(lambda x: td.linalg.svd(x)[1], td.ones(2, 3))


def test_nothing_is_left_of_a_file_that_cannot_be_written(tmp_path):
    with pytest.raises(td.UnsupportedError):
        td.onnx.save(lambda x: td.linalg.svd(x)[1], td.ones(2, 3), tmp_path / "m.onnx")
    td.onnx.save(td.nn.Linear(3, 2), td.ones(2, 3), tmp_path / "n.onnx")
    assert ["n.onnx"] == [p.name for p in tmp_path.iterdir()]
    assert (5, 2) == tuple(td.onnx.load(tmp_path / "n.onnx")(td.ones(5, 3)).shape)


def grouped_attention(x):
    q, k = x.reshape(-1, 5, 4, 4).transpose(1, 2), x[:, :, :8].reshape(-1, 5, 2, 4).transpose(1, 2)
    mask = td.arange(5)[:, None] >= td.arange(5)[None, :] - 1
    return F.scaled_dot_product_attention(q, k, k, attn_mask=mask, enable_gqa=True)


def masks_of_masks(x):
    far, near = x > 1, x < 0
    return td.where(td.where(x.sum(-1, keepdim=True) > 0, far, ~near), x, -x)


def sums_of_rows(x):
    index = td.arange(600) % 3
    return td.zeros(3, x.shape[1]).index_add(0, index, x[:1].expand(600, x.shape[1])) + x[:3]


PATTERNS = {
    "sums of many rows": (sums_of_rows, (4, 7)),
    "grouped attention with a mask": (grouped_attention, (2, 5, 16)),
    "where of booleans": (masks_of_masks, (3, 7)),
    "running products": (lambda x: td.cumprod(x, 1), (3, 7)),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name):
    fn, shape = PATTERNS[name]
    check_save(fn, td.randn(*shape), whole_batches=name != "sums of many rows")


def test_sums_are_not_written_as_what_runtimes_add_up_at_once():
    assert "ScatterND" not in kinds(td.onnx.save(sums_of_rows, (td.randn(4, 7),)))


class Named(td.nn.Module):
    """Parameters with the names that arguments and results have."""

    def __init__(self):
        super().__init__()
        self.x, self.y = (td.nn.Parameter(td.randn(*s)) for s in ((2, 2), (2,)))

    def forward(self, v):
        return v @ self.x + self.y


@pytest.mark.parametrize("fold", [False, True])
def test_weights_with_names_of_arguments_and_results(fold):
    """A weight called x was taken for the argument x."""
    proto = check_save(Named(), td.randn(3, 2), fold=fold)
    assert ["x"] == [v.name for v in proto.graph.input] and ["y"] == [v.name for v in proto.graph.output]
    check_save(Named(), td.randn(3, 2), fold=fold, input_names=["y"], output_names=["constant0"])


def test_names_that_a_writer_would_take():
    check_save(lambda a, b: (a * 2 + b, a @ b.T), td.randn(3, 3), td.randn(3, 3), input_names=["const_1", "mul_1"],
               output_names=["add_3", "mul_2"], whole_batches=False)  # fmt: skip


def test_names_that_do_not_fit_are_refused():
    x = td.ones(2)
    for text, options in [
        ("1 names were given for 2 results", {"output_names": ["a"]}),
        (r"names of results are \['a', 'a'\]", {"output_names": ["a", "a"]}),
        (r"names of arguments are \['b', 'b'\]", {"input_names": ["b", "b"]}),
        (r"names of arguments are \[5, 'b'\]", {"input_names": [5, "b"]}),
        (r"\['x0'\] are names of arguments and of results", {"output_names": ["x0", "z"]}),
    ]:
        with pytest.raises(td.errors.ValueRangeError, match=text):
            td.onnx.save(lambda a, b: (a + b, a - b), (x, x), **options)


def test_free_axes_may_be_numbers():
    proto = td.onnx.save(lambda x: x * 2, td.ones(2, 3), dynamic={"x": 1})
    assert [0, 1] == [len(d.dim_param) > 0 for d in proto.graph.input[0].type.tensor_type.shape.dim]
