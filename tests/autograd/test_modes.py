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


def in_overlapping_threads(scope, outer):
    """Two threads are in one scope at once, and the one that came first, inside of `outer`, leaves first: what each is in before
    and after it."""
    came, other_came, left, found = threading.Event(), threading.Event(), threading.Event(), {}

    def state():
        scope = td._runtime.set_device_scope(-1)
        td._runtime.set_device_scope(scope)
        return td.is_grad_enabled(), td.is_inference_mode_enabled(), td._runtime.autocast_mode(), scope

    def first():
        with outer:
            before = state()
            with scope:
                came.set()
                assert other_came.wait(300)
            found["first"] = before, state()
        left.set()

    def second():
        assert came.wait(300)
        before = state()
        with scope:
            other_came.set()
            assert left.wait(300)
        found["second"] = before, state()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    return found


@pytest.mark.parametrize(
    ("scope", "outer"),
    [
        (td.enable_grad(), td.no_grad()),
        (td.no_grad(), td.inference_mode()),
        (td.autocast("cpu", enabled=False), td.autocast("cpu")),
        (td.device("/job:worker/task:1"), td.device("/job:worker/task:2")),
    ],
)
def test_a_scope_that_threads_share_gives_each_what_it_had(scope, outer):
    found = in_overlapping_threads(scope, outer)
    assert len(found) == 2 and all(before == after for before, after in found.values())


def test_scopes_of_threads_that_overlap_do_not_leave_anomalies_looked_for():
    """Ranks of one process enter and leave such scopes at about the same time."""
    scopes = [td.autograd.detect_anomaly() for _ in range(2)]
    scopes[0].__enter__()
    scopes[1].__enter__()
    scopes[0].__exit__()
    with pytest.raises(td.AutogradError, match="NaN"):
        td.log(td.tensor([-1.0]))
    scopes[1].__exit__()
    assert np.isnan(td.log(td.tensor([-1.0])).item())


def test_a_generator_that_another_thread_collects_changes_nothing_there():
    def inside():
        with td.no_grad(), td.autocast("cpu"), td.device("/job:worker/task:1"):
            yield td.is_grad_enabled()

    generators, found = [inside()], []

    def collect():
        generators.pop().close()
        found.extend([td.is_grad_enabled(), td._runtime.autocast_mode(), td._runtime.set_device_scope(-1)])

    for work in (lambda: found.append(next(generators[0])), collect):  # each thread's settings end with it
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(300)
    assert found == [False, True, 0, -1]
