"""Functions as StableHLO: the text, and its values as XLA computes them where jaxlib is installed."""

import os
import re

import numpy as np
import pytest

import tandem as td
import tandem.nn.functional as F
from tandem import models


def test_the_text_of_a_small_function():
    text = str(td.export.stablehlo(lambda x: (x @ x).relu().sum(), td.ones(2, 2)))
    for part in (
        "func.func public @main(%x: tensor<2x2xf32>) -> (tensor<f32>)",
        "stablehlo.dot_general",
        "applies stablehlo.add",
    ):
        assert part in text


def test_weights_are_arguments_behind_the_functions_own():
    made = td.export.stablehlo(td.nn.Linear(3, 2), td.ones(4, 3))
    assert ["weight", "bias"] == list(made.weights)
    assert "@main(%x: tensor<4x3xf32>, %w0: tensor<2x3xf32>, %w1: tensor<2xf32>)" in made.text


def test_what_cannot_be_written_is_named():
    with pytest.raises(td.UnsupportedError, match="stablehlo svd: it cannot be written as StableHLO"):
        td.export.stablehlo(lambda x: td.linalg.svd(x)[1], td.ones(3, 3))


@pytest.fixture(scope="module")
def xla():
    pytest.importorskip("jaxlib", reason="jaxlib is not installed")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    from jaxlib import _jax, xla_client

    (device, *_) = jax.devices("cpu")

    def run(text: str, arrays: list) -> list:
        with jax.enable_x64(True):
            options = xla_client.CompileOptions()
            code = text if isinstance(text, bytes) else text.encode()
            program = device.client.compile_and_load(code, _jax.DeviceList((device,)), options)
            results = program.execute_sharded([jax.device_put(a, device) for a in arrays])
            return [np.asarray(x[0]) for x in results.disassemble_into_single_device_arrays()]

    return run


def flat(results) -> list:
    return [results] if isinstance(results, td.Tensor) else [leaf for part in results for leaf in flat(part)]


def check(xla, fn, *args, tolerance=2e-5):
    made = td.export.stablehlo(fn, args)
    with td.no_grad():
        expected = flat(fn(*args))
    results = xla(made.text, [*(a.numpy() for a in args), *(w.detach().numpy() for w in made.weights.values())])
    for e, got in zip(expected, results, strict=True):
        assert e.numpy().dtype == got.dtype
        np.testing.assert_allclose(got, e.numpy(), rtol=tolerance, atol=tolerance)


td.manual_seed(3)
LSTM = td.nn.LSTM(4, 5, batch_first=True)
CONV = td.nn.Conv2d(2, 3, 3, 2, 1)
CASES = {
    "movement": (lambda x: (x.flip(1), td.roll(x, 1, 1), x[:, ::2], F.pad(x, (1, 2)), td.tril(x), x[:, [2, 0]]), (5, 5)),
    "reductions": (
        lambda x: (td.argmax(x, 1), td.amin(x, 0), td.prod(x), (x > 0).any(1), td.logsumexp(x, 1), td.var(x)), (4, 6),
    ),
    "order": (lambda x: (td.sort(x, axis=1), td.argsort(x, axis=1, descending=True), td.topk(x, 2), td.cumsum(x, 1)), (4, 6)),
    "tails": (lambda x: (td.erfc(x * 3), td.sinh(x * 20), td.cosh(x * 20), td.i0(x * 9), td.erf(x.double())), (4, 5)),
    "functions": (
        lambda x: (td.lgamma(x.abs() + 0.5), td.erf(x), td.asin(x.tanh()), td.sinh(x), td.i0(x), F.softplus(x), td.tan(x)), (4, 5),
    ),
    "division": (lambda x: (x // 0.3, x % 0.3, td.fmod(x, 0.3), td.trunc(x), td.copysign(x, -x), x.abs() ** 1.3), (4, 5)),
    "whole numbers": (lambda x: (td.floor(x.long()), td.round(x.int()), td.abs(x > 0), td.abs((x * 9).long())), (4, 5)),
    "integers": (lambda x: ((x * 10).long() // 3, (x * 10).long() % -3, (x * 10).int() >> 1), (4, 5)),
    "narrow numbers": (
        lambda x: [(x * 90).to(t) for t in (td.uint8, td.int8, td.int16, td.uint16, td.uint32, td.int32)], (4, 5),
    ),
    "divisors": (lambda x: ((x * 10).long() // (x.abs().long() + 3), (x * 10).int() % (x.abs().int() + 3)), (4, 5)),
    "scatter": (lambda x: td.index_add(td.zeros(3, 4), 0, td.tensor([0, 2, 0]), x), (3, 4)),
    "lstm": (lambda x: LSTM(x)[0], (2, 3, 4)),
    "gradient": (lambda x: td.grad(lambda y: (CONV(y).tanh() ** 2).sum())(x), (2, 2, 9, 9)),
    "transformer": (td.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval(), (2, 5, 16)),
    "pools": (td.nn.Sequential(td.nn.MaxPool2d(3, 2, 1), td.nn.AvgPool2d(2, ceil_mode=True, padding=1)), (2, 3, 9, 9)),
    "adaptive": (td.nn.AdaptiveAvgPool2d(3), (2, 3, 8, 7)),
    "transposed": (td.nn.ConvTranspose2d(4, 4, 3, 2, 1, 1, groups=2), (2, 4, 5, 5)),
    "branch": (lambda x: td.cond(x.sum() > 0, lambda: x * 2, lambda: x - 1), (3, 2)),
    "loop": (lambda x: td.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2.0), (td.tensor(0), x))[1], (3, 2)),
    "scan": (lambda x: td.scan(lambda c, r: (c + r, c * r), td.zeros(4), x), (3, 4)),
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_xla(xla, name):
    fn, shape = CASES[name]
    check(xla, fn, td.randn(*shape))


@pytest.mark.oracle
@pytest.mark.parametrize(
    "model, args",
    [
        (models.LeNet, lambda: (td.randn(2, 1, 28, 28),)),
        (lambda: models.GPT2(100, 32, 2, 2, 32), lambda: (td.randint(0, 100, (2, 16)),)),
        (lambda: models.ViT(32, 8, 32, 2, 2, 64, 10), lambda: (td.randn(2, 3, 32, 32),)),
        (models.MobileNetV2, lambda: (td.randn(1, 3, 64, 64),)),
    ],
    ids=["lenet", "gpt2", "vit", "mobilenet"],
)
def test_models(xla, model, args):
    check(xla, model().eval(), *args(), tolerance=1e-4)


# -- free sizes


def test_the_text_of_a_free_size():
    text = str(td.export.stablehlo(lambda x: x.sum(1, keepdim=True) / x.shape[0] + x, td.ones(4, 3), dynamic=True))
    assert "@main(%x: tensor<?x3xf32>) -> (tensor<?x3xf32>)" in text
    assert "stablehlo.get_dimension_size %x, dim = 0" in text and "stablehlo.dynamic_broadcast_in_dim" in text


def test_what_needs_to_know_its_sizes_says_so():
    with pytest.raises(td.UnsupportedError, match="stablehlo cumulative: it needs to know the size of its axis"):
        td.export.stablehlo(lambda x: x.cumsum(0), td.ones(4, 3), dynamic=True)


def with_sizes(made, arrays: list) -> str:
    """The program called from a main of fixed sizes; XLA then works out all others."""
    from jaxlib import _jax

    text = made.text.replace("func.func public @main", "func.func private @inner")
    head = text[text.index("@inner(") + 7 : text.index(") -> (")]
    results = text[text.index(") -> (") + 6 : text.index(") {")]
    types = [part.split(": ")[1] for part in head.split(", %")]
    fixed = [
        f"tensor<{''.join(f'{n}x' for n in a.shape)}{re.split('[x<]', t)[-1]}"
        for a, t in zip(arrays, types, strict=True)
    ]
    lines = [f"  func.func public @main({', '.join(f'%a{i}: {t}' for i, t in enumerate(fixed))}) -> ({results}) {{"]
    for i, (a, t) in enumerate(zip(fixed, types, strict=True)):
        lines.append(f"    %b{i} = stablehlo.convert %a{i} : ({a}) -> {t}")
    given = ", ".join(f"%b{i}" for i in range(len(types)))
    count = results.count("tensor<")
    named = "%r" if count == 1 else f"%r:{count}"
    lines.append(f"    {named} = func.call @inner({given}) : ({', '.join(types)}) -> ({results})")
    returned = "%r" if count == 1 else ", ".join(f"%r#{i}" for i in range(count))
    lines += [f"    return {returned} : {results}", "  }", "}"]
    whole = text.rstrip().removesuffix("}") + "\n".join(lines)
    return _jax.mlir.refine_polymorphic_shapes(whole.encode())


NETWORK = td.nn.Sequential(
    td.nn.Conv2d(1, 4, 3), td.nn.BatchNorm2d(4), td.nn.ReLU(), td.nn.MaxPool2d(2), td.nn.Flatten(), td.nn.Linear(36, 10)
).eval()
FREE = [
    (NETWORK, [(2, 1, 8, 8)], True),
    (lambda x: F.softmax(x @ x.transpose(0, 1), -1) @ x, [(4, 3)], True),
    (lambda x: (x - x.mean(0)) / x.var(0).sqrt(), [(5, 3)], True),
    (lambda x, y: td.concat([x, y * 2], 0)[1:], [(4, 3), (2, 3)], {"x0": (0,), "x1": (0,)}),
    (lambda x: x.reshape(-1, 2).sum(1) + td.arange(x.shape[0] * 2), [(4, 4)], True),
    (td.nn.LayerNorm(6), [(3, 5, 6)], {"x": (0, 1)}),
    (lambda x: LSTM(x)[0], [(3, 6, 4)], True),
    (lambda x: td.scan(lambda c, r: (c * 0.5 + r, c.sum()), td.zeros(4), x, reverse=True)[1], [(3, 4)], True),
    (lambda x: td.roll(x, 1, 1).flip(0)[:, 1:3] + F.pad(x, (0, 1))[:, 3:] * x.argmax(0)[1], [(3, 4)], True),
    (lambda x: td.topk(x, 2, 1)[0] + x[td.argsort(x[:, 0])][:, ::2] / len(x) ** 0.5, [(3, 4)], True),
    (lambda x: F.interpolate(x, size=(5, 3), mode="bilinear"), [(3, 2, 4, 4)], True),
    (lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False), [(3, 2, 4, 4), (3, 2, 5, 2)], True),
    (lambda x: x[: (1 - len(x)) // 3 + len(x)].sum() + td.einsum("nii->ni", x).sum(), [(4, 3, 3)], True),
]


@pytest.mark.parametrize("number", range(len(FREE)))
def test_values_of_free_sizes(xla, number):
    fn, shapes, dynamic = FREE[number]
    made = td.export.stablehlo(fn, tuple(td.randn(s) for s in shapes), dynamic=dynamic)
    for more in (1, 4):
        named = {f"x{i}" if len(shapes) > 1 else "x": i for i in range(len(shapes))}
        axes = (
            {named[k]: v for k, v in dynamic.items()}
            if isinstance(dynamic, dict)
            else dict.fromkeys(range(len(shapes)), (0,))
        )
        args = [td.randn([n + more * (a in axes[i]) for a, n in enumerate(s)]) for i, s in enumerate(shapes)]
        arrays = [a.numpy() for a in args] + [w.detach().numpy() for w in made.weights.values()]
        with td.no_grad():
            expected = fn(*args)
        np.testing.assert_allclose(xla(with_sizes(made, arrays), arrays)[0], expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.oracle
@pytest.mark.slow
def test_iree_runs_any_size_with_one_program(tmp_path):
    compiler = pytest.importorskip("iree.compiler", reason="IREE is not installed")
    runtime = pytest.importorskip("iree.runtime", reason="IREE is not installed")
    network = td.nn.Sequential(td.nn.Conv2d(1, 4, 3), td.nn.BatchNorm2d(4), td.nn.ReLU(), td.nn.Conv2d(4, 2, 3)).eval()
    made = td.export.stablehlo(
        network, td.randn(2, 1, 8, 8), dynamic=True
    )  # IREE takes no pooling and reshapes of free sizes
    (tmp_path / "network.mlir").write_text(made.text)
    code = compiler.compile_file(
        str(tmp_path / "network.mlir"),
        target_backends=["llvm-cpu"],
        input_type="stablehlo",
        extra_args=["--iree-llvmcpu-target-cpu=host"],
    )
    main = runtime.load_vm_flatbuffer(code, driver="local-task").main
    weights = [w.detach().numpy() for w in made.weights.values()]
    for batch in (1, 3, 7):
        x = td.randn(batch, 1, 8, 8)
        with td.no_grad():
            expected = network(x).numpy()
        np.testing.assert_allclose(main(x.numpy(), *weights).to_host(), expected, rtol=1e-4, atol=1e-5)
