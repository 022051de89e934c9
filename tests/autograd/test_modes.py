import inspect
import threading

import numpy as np
import pytest

import tandem as td


@pytest.fixture
def x():
    return td.tensor([1.0, 2.0], requires_grad=True)


def test_no_grad(x):
    with td.no_grad():
        assert not td.is_grad_enabled()
        y = x * 2
    assert not y.requires_grad and y.is_leaf and td.is_grad_enabled()


def test_no_grad_as_decorator(x):
    @td.no_grad()
    def double(t):
        """Twice t."""
        return t * 2

    assert not double(x).requires_grad and double.__doc__ == "Twice t."
    assert td.is_grad_enabled()


def test_enable_grad_inside_no_grad(x):
    with td.no_grad():
        with td.enable_grad():
            assert (x * 2).requires_grad
        assert not (x * 2).requires_grad


def test_scopes_are_left_on_errors(x):
    with pytest.raises(KeyError), td.no_grad():
        raise KeyError
    assert td.is_grad_enabled()


def test_set_grad_enabled(x):
    with td.set_grad_enabled(False):
        assert not (x * 2).requires_grad
    assert td.is_grad_enabled()
    td.set_grad_enabled(False)
    assert not td.is_grad_enabled()
    td.set_grad_enabled(True)
    assert (x * 2).requires_grad

    @td.set_grad_enabled(False)
    def double(t):
        return t * 2

    assert td.is_grad_enabled() and not double(x).requires_grad


def test_one_scope_may_be_entered_again(x):
    scope = td.no_grad()
    with scope, scope:
        assert not td.is_grad_enabled()
    assert td.is_grad_enabled()


def test_modes_belong_to_a_thread():
    seen = []
    with td.no_grad():
        thread = threading.Thread(target=lambda: seen.append(td.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_inference_mode(x):
    with td.inference_mode():
        y = x * 2
        y += 1
        assert not y.requires_grad
    with pytest.raises(td.AutogradError, match="inference"):
        y += 1
    z = y.clone()
    z += 1


def test_inference_tensors_cannot_be_saved(x):
    with td.inference_mode():
        y = x * 2
    with pytest.raises(td.AutogradError, match="inference"):
        x * y  # backward would need y
    assert (x + y.clone()).requires_grad


def test_inference_mode_off(x):
    with td.inference_mode(False):
        assert (x * 2).requires_grad


def test_parameters_may_be_updated_in_no_grad(x):
    with td.no_grad():
        x -= 0.5
        x[0] = 7
    assert x.requires_grad and x.is_leaf and x.tolist() == [7, 1.5]


def test_what_was_made_in_no_grad_can_be_used(x):
    with td.no_grad():
        y = x * 2
    (x * y).sum().backward()
    assert x.grad.tolist() == [2, 4]


def test_detect_anomaly_in_backward(x):
    with td.autograd.detect_anomaly():
        line = inspect.currentframe().f_lineno + 1
        y = td.sqrt(x - 1)  # the slope at 0 is infinite, and times 0 that is NaN
        z = (y * td.tensor([0.0, 1.0])).sum()
        with pytest.raises(td.AutogradError) as caught:
            z.backward()
    text = str(caught.value)
    assert "sqrt: backward gave a gradient" in text and "NaN" in text
    assert f"recorded at test_modes.py:{line}\n" in text


def test_detect_anomaly_in_forward(x):
    with td.autograd.detect_anomaly(), pytest.raises(td.AutogradError, match=r"(?s)log.*NaN.*test_modes.py"):
        td.log(x - 5)


@pytest.mark.parametrize("settings", [{}, {"whole": True}, {"replay": True}])
def test_detect_anomaly_in_compiled_functions(settings):
    def train(x):
        loss = (td.sqrt(x) * td.tensor([0.0, 1.0])).sum()
        loss.backward()
        return loss.detach()

    compiled = td.compile(train, **settings)
    for _ in range(7):  # the calls are known after some
        good, bad = (td.tensor([n, 2.0], requires_grad=True) for n in (1.0, 0.0))
        compiled(good)
        assert np.isfinite(good.grad.numpy()).all()
        with td.autograd.detect_anomaly():
            compiled(good)
            with pytest.raises(td.AutogradError, match=r"(?s)sqrt: .*NaN.*recorded at test_modes\.py"):
                compiled(bad)
