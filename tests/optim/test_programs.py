"""A training step is one program from its first call on: state is there before the program is."""

import numpy as np
import pytest

import tandem as td
from tandem import nn, optim
from tests.optim.test_optimizer import ALL


def make(name: str, **more):
    td.manual_seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = getattr(optim, name)(model.parameters(), **{**ALL.get(name, {"lr": 0.1}), **more})

    def step(x):
        loss = (model(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return model, optimizer, step


@pytest.mark.parametrize("name", ALL)
def test_the_first_step_is_the_program_of_the_later_ones(name):
    model, optimizer, step = make(name)
    x = td.randn(5, 4)
    compiled = td.compile(step)
    for _ in range(3):
        compiled(x)
    assert compiled._programs.num_programs == 1, compiled.explain()
    for state in optimizer.state.values():
        assert state and not any(_is_deferred(t) for t in state.values())
    # The same updates as outside of a compiled function. A sum may be taken in another order, so not to the last bit.
    other, _, plain = make(name)
    x = x.clone()
    for _ in range(3):
        plain(x)
    for a, b in zip(model.parameters(), other.parameters(), strict=True):
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=2e-4, atol=2e-5)


def _is_deferred(t) -> bool:
    return isinstance(t, td.Tensor) and td._runtime.pending(t)


@pytest.mark.parametrize("name", ALL)
def test_updates_of_one_element_are_the_same_to_the_last_bit(name):
    """Nothing to sum over: eager, compiled and with EAGER=1 every bit must agree."""
    results = []
    for mode in ("eager", "compiled", "switched"):
        p = nn.Parameter(td.tensor([0.3, -2.0, 1e-3, 7.0]))
        optimizer = getattr(optim, name)([p], **ALL[name])
        g = td.tensor([0.5, -0.1, 3.0, 1e-4])

        def step(g, p=p, optimizer=optimizer):
            p.grad = g * 1
            optimizer.step()

        with td.switches(EAGER=int(mode == "switched")):
            run = step if mode == "eager" else td.compile(step)
            for k in range(4):
                run(g * (k + 1))
        results.append(p.detach().numpy().tobytes())
    if name in ("LAMB", "LARS", "Adafactor"):  # their norms are sums
        a, b, c = (np.frombuffer(r, np.float32) for r in results)
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert (a == c).all()
    else:
        assert results[0] == results[1] == results[2]


def test_state_of_a_parameter_made_inside_is_part_of_the_program():
    @td.compile
    def fit(x):
        w = nn.Parameter(x * 2)
        optimizer = optim.Adam([w], lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            (w**2).sum().backward()
            optimizer.step()
        return w.detach() * 1

    x = td.tensor([1.0, -1.0])
    expected = fit._fn(x)
    np.testing.assert_allclose(fit(x).numpy(), expected.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["Adam", "SGD", "Adafactor"])
def test_deferred_and_eager_steps_agree(name):
    start = np.array([0.3, -2.0, 7.0], np.float32)
    p = nn.Parameter(td.tensor(start))
    eager = getattr(optim, name)([p], **ALL[name])
    for _ in range(3):
        eager.zero_grad()
        (p**2).sum().backward()
        eager.step()
    with td.Graph() as graph:
        v = td.Variable(td.tensor(start))
        train = getattr(optim, name)([v], **ALL[name]).minimize((v**2).sum())
        initialize = td.global_variables_initializer()
    with td.Session(graph) as session:
        session.run(initialize)
        for _ in range(3):
            session.run(train)
        np.testing.assert_allclose(session.run(v).numpy(), p.detach().numpy(), rtol=1e-6)


# -- counts of steps


def test_a_new_step_count_is_noticed():
    """Adam's corrections are computed from the step that the state says, whoever wrote it."""
    p = nn.Parameter(td.tensor([1.0]))
    optimizer = optim.Adam([p], lr=0.1)

    @td.compile
    def step(g):
        p.grad = g * 1
        optimizer.step()

    def moved() -> float:
        before = p.item()
        step(td.tensor([1.0]))
        return before - p.item()

    assert moved() == pytest.approx(0.1, rel=1e-4)
    with td.no_grad():
        optimizer.state[p]["step"].fill_(0.0)
        optimizer.state[p]["exp_avg"].fill_(0.0)
        optimizer.state[p]["exp_avg_sq"].fill_(0.0)
    assert moved() == pytest.approx(0.1, rel=1e-4)
    assert optimizer.state[p]["step"].item() == 1
    optimizer.load_state_dict(optimizer.state_dict())
    assert moved() == pytest.approx(0.1, rel=1e-4) and optimizer.state[p]["step"].item() == 2
    assert step._programs.num_programs == 1


def test_many_steps_in_one_program_count_on():
    results = []
    for compiled in (False, True):
        p = nn.Parameter(td.tensor([1.0, -2.0]))
        optimizer = optim.AdamW([p], lr=0.1)

        def fit(g, p=p, optimizer=optimizer):
            for k in range(3):
                p.grad = g * (k + 1)
                optimizer.step()

        run = td.compile(fit) if compiled else fit
        for _ in range(2):
            run(td.tensor([1.0, 0.5]))
        assert optimizer.state[p]["step"].item() == 6
        results.append(p.detach().numpy().tobytes())
    assert results[0] == results[1]


def test_a_learning_rate_that_is_a_tensor_still_works():
    ps = [nn.Parameter(td.tensor([1.0])) for _ in range(2)]
    for p, lr in zip(ps, (0.1, td.tensor(0.1)), strict=True):
        optimizer = optim.Adam([p], lr=lr)
        for _ in range(3):
            p.grad = td.tensor([0.7])
            optimizer.step()
    np.testing.assert_allclose(ps[0].item(), ps[1].item(), rtol=1e-6)
