"""Calls as PyTorch takes them: out=, names of parameters, complex numbers, and what it refuses."""

import numpy as np
import pytest

import tandem as td
import tandem.torch as torch


def test_linear_algebra_and_transforms_take_out():
    values, vectors = torch.empty(2), torch.empty(2, 2)
    torch.linalg.eigh(torch.eye(2), out=(values, vectors))
    assert values.tolist() == [1.0, 1.0]
    spectrum = torch.empty(3, dtype=torch.complex64)
    assert torch.fft.rfft(torch.ones(4), out=spectrum) is spectrum
    assert spectrum[0].item() == 4
    made = torch.empty(3)
    assert torch.ones(3, out=made) is made
    assert made.tolist() == [1.0, 1.0, 1.0]


def test_operands_go_by_their_names():
    assert torch.complex(real=torch.ones(1), imag=torch.ones(1)).item() == 1 + 1j
    assert torch.special.chebyshev_polynomial_t(x=torch.tensor([2.0]), n=torch.tensor([2])).item() == 7
    assert torch.tril_indices(2, 2, dtype=torch.int32).dtype is td.int32
    assert torch.linalg.vecdot(torch.ones(2, 3), torch.ones(2, 3), dim=0).tolist() == [2.0, 2.0, 2.0]


def test_statistics_of_complex_numbers():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 5)) + 1j * rng.normal(size=(3, 5))
    np.testing.assert_allclose(np.cov(x), td.cov(td.tensor(x)).numpy(), rtol=1e-12)
    np.testing.assert_allclose(np.corrcoef(x), td.corrcoef(td.tensor(x)).numpy(), rtol=1e-12)
    np.testing.assert_allclose(np.log(np.exp(x).sum(1)), td.logsumexp(td.tensor(x), 1).numpy(), rtol=1e-12)
    np.testing.assert_allclose(np.log(np.exp(x) + np.exp(2 * x)), td.logaddexp(td.tensor(x), td.tensor(2 * x)).numpy())


def test_results_are_those_of_pytorch():
    assert torch.all(torch.ones(2, dtype=torch.uint8)).dtype is td.uint8
    assert torch.amax(torch.ones(2, 3), dim=()).shape == ()
    assert torch.cat([torch.empty(0), torch.ones(2, 2)], 1).shape == (2, 2)
    weight = torch.ones(4, dtype=torch.bfloat16)
    assert torch.nn.functional.rms_norm(torch.ones(2, 4, dtype=torch.bfloat16), (4,), weight).dtype is td.bfloat16
    found = torch.linalg.lstsq(torch.ones(3, 1), torch.ones(3, 1), driver="gels")
    assert found.rank.shape == (0,)
    assert torch.gather(torch.ones(5), 0, torch.empty(2, 0, dtype=torch.int64)).shape == (2, 0)


REFUSED = {
    "parts of two dtypes": lambda: torch.complex(torch.ones(1), torch.ones(1, dtype=torch.float64)),
    "a transform of a number": lambda: torch.fft.fft(torch.tensor(1.0)),
    "a fill that is no number": lambda: torch.masked_fill(torch.ones(2), torch.ones(2) > 0, torch.ones(1)),
    "a source of another dtype": lambda: torch.scatter(torch.ones(3), 0, torch.tensor([0]), torch.ones(1).double()),
    "a rate of 0": lambda: torch.ones(2).exponential_(0),
    "a probability above 1": lambda: torch.ones(2).geometric_(1.5),
    "bounds in the wrong order": lambda: torch.nn.functional.rrelu(torch.ones(2), 0.3, 0.1),
    "a negative margin": lambda: torch.nn.functional.triplet_margin_loss(*[torch.ones(2, 3)] * 3, margin=-1.0),
    "no samples": lambda: torch.multinomial(torch.ones(2), 0),
    "an infinite range": lambda: torch.arange(0, float("inf")),
    "a layout that is no permutation": lambda: torch.empty_permuted((2, 3), (0, 0)),
    "fractional counts": lambda: torch.cov(torch.ones(5), fweights=torch.ones(5)),
}


@pytest.mark.parametrize("call", REFUSED.values(), ids=list(REFUSED))
def test_bad_calls_are_refused(call):
    with pytest.raises(RuntimeError):
        call()


def test_windows_are_strided():
    assert torch.signal.windows.hann(4, layout=torch.strided).shape == (4,)
    with pytest.raises(ValueError, match="windows are strided"):
        torch.signal.windows.hann(4, layout=torch.sparse_coo)


def test_sizes_of_parts_go_by_either_name():
    x = torch.arange(4)
    assert [p.tolist() for p in x.split(split_size=[1, 3])] == [[0], [1, 2, 3]]
    assert [p.tolist() for p in torch.split(x, split_size_or_sections=2, dim=0)] == [[0, 1], [2, 3]]


def test_the_older_check_of_closeness():
    torch.testing.assert_allclose(torch.tensor([1.0, float("nan")]), [1.00001, float("nan")])
    with pytest.raises(AssertionError):
        torch.testing.assert_allclose(torch.tensor([1.0]), torch.tensor([1.1]))


def test_uninitialized_parameters_take_a_shape():
    module = torch.nn.Module()
    module.p = torch.nn.UninitializedParameter()
    module.p.materialize((2, 3))
    assert type(module.p) is torch.nn.Parameter and module.p.shape == (2, 3) and module.p.requires_grad
    assert [p.shape for p in module.parameters()] == [(2, 3)]
