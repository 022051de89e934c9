"""Complex numbers inside exported functions: what files compute is what this library does, for other sizes too."""

import numpy as np
import pytest

import tandem as td
from tandem.export.in_parts import in_parts
from tandem.export.trace import trace
from tests.onnx.writers.roundtrip import check_save, flat


def rotated(x):
    """Pairs of a row are turned by angles that a complex weight holds."""
    pairs = td.view_as_complex(x.reshape(x.shape[0], -1, 2))
    return td.view_as_real(pairs * td.polar(td.ones(3), td.tensor([0.1, 1.0, 2.0]))).flatten(1)


def arithmetic(x):
    z = td.complex(x, x.flip(1) * 2 + 1)
    quotient = (z.conj() - 1j) / (z * z + 3)
    return abs(z), z.angle(), td.exp(z).imag, td.sqrt(z).real, quotient.real, (z == z), td.where(x > 0, z, 2j).imag


def rearranged(x):
    z = td.complex(x, -x)
    product = z @ z.mT.conj()
    return (
        product.real,
        td.concat([z, z[:, :2]], 1).sum(1).imag,
        z.T[1:].cumsum(0).real,
        z[:, td.tensor([2, 0])].mean().real,
    )


CASES = {"rotated": rotated, "arithmetic": arithmetic, "rearranged": rearranged}


@pytest.mark.parametrize("name", CASES)
def test_files_compute_with_parts(name):
    check_save(CASES[name], td.randn(4, 6))


@pytest.mark.parametrize("name", CASES)
def test_nothing_inside_is_complex(name):
    exported = trace(CASES[name], (td.randn(4, 6),))
    graph = in_parts(exported.graph)
    assert not any(
        v.dtype.is_complex for n in graph.nodes if not n.op.is_input for v in n.outputs if v not in graph.outputs
    )
    x = td.randn(9, 6)
    for expected, made in zip(flat(CASES[name](x)), graph.run(x, *exported.weights.values()), strict=True):
        np.testing.assert_allclose(made.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)


def test_complex_weights_are_two():
    model = td.nn.Module()
    model.w = td.nn.Parameter(td.complex(td.randn(3), td.randn(3)))
    model.forward = lambda x: (model.w * x).real + model.w.imag
    proto = check_save(model, td.randn(4, 3), fold=False)
    assert ["w.real", "w.imag"] == [t.name for t in proto.graph.initializer if t.name.startswith("w")]


def test_complex_arguments_and_results_are_refused():
    z = td.complex(td.ones(2), td.ones(2))
    with pytest.raises(td.UnsupportedError, match=r"'x' is complex64.*\n.*td.view_as_real"):
        td.onnx.save(lambda x: x.real, z)
    with pytest.raises(td.UnsupportedError, match="'y' is complex64"):
        td.onnx.save(lambda x: x * 1j, td.ones(2))
    with pytest.raises(td.UnsupportedError, match="cond has complex operands"):
        td.onnx.save(lambda x: td.cond(x.sum() > 0, lambda v: v * 2, lambda v: v, x * 1j).imag, td.ones(2))
