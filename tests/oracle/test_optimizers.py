"""Optimisers and schedules against PyTorch's: the same trajectories."""

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

import tandem as td

pytestmark = pytest.mark.oracle
SHAPES = [(3, 4), (5,), (2, 3, 2)]


def parameters(seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    arrays = [rng.normal(size=s).astype(dtype) for s in SHAPES]
    return [td.nn.Parameter(td.tensor(a)) for a in arrays], [torch.nn.Parameter(torch.tensor(a)) for a in arrays]


def follow(ours, theirs, a, b, steps=10, rtol=1e-9, each=None):
    rng = np.random.default_rng(1)
    for step in range(steps):
        for i, (p, q) in enumerate(zip(a, b, strict=True)):
            g = rng.normal(size=tuple(q.shape))
            if step == 3 and i == 1:  # no gradient once: neither value nor state changes
                p.grad = q.grad = None
                continue
            p.grad, q.grad = td.tensor(g).to(p.dtype), torch.tensor(g).to(q.dtype)
        ours.step()
        theirs.step()
        if each:
            each(step)
        for p, q in zip(a, b, strict=True):
            np.testing.assert_allclose(
                p.detach().numpy(), q.detach().numpy(), rtol=rtol, atol=rtol, err_msg=f"step {step}"
            )


OPTIMIZERS = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "dampening": 0.3}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("Adadelta", {"lr": 0.5, "weight_decay": 0.1}),
    ("RMSprop", {}),
    ("RMSprop", {"momentum": 0.9, "weight_decay": 0.1}),
    ("RMSprop", {"centered": True, "maximize": True}),
    ("RMSprop", {"centered": True, "momentum": 0.5}),
    ("Adam", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adam", {"lr": 0.1, "amsgrad": True, "maximize": True, "fused": None}),
    ("AdamW", {"lr": 0.1, "weight_decay": 0.3, "betas": (0.8, 0.9)}),
    ("AdamW", {"lr": 0.1, "amsgrad": True}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1}),
    ("NAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.1, "betas": (0.9, 0.95)}),
    ("RAdam", {"lr": 0.1, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("Adamax", {"lr": 0.1, "weight_decay": 0.1}),
    ("Adafactor", {"lr": 0.1, "weight_decay": 0.1}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.3, "etas": (0.4, 1.5), "step_sizes": (0.1, 0.6), "maximize": True, "foreach": False}),
    ("ASGD", {"lr": 0.1, "weight_decay": 0.1, "t0": 4, "lambd": 0.01}),
    ("ASGD", {"maximize": True, "alpha": 0.5}),
]


@pytest.mark.parametrize(("name", "kwargs"), OPTIMIZERS, ids=[f"{name}-{i}" for i, (name, _) in enumerate(OPTIMIZERS)])
def test_trajectories(name, kwargs):
    a, b = parameters()
    ours, theirs = getattr(td.optim, name)(a, **kwargs), getattr(torch.optim, name)(b, **kwargs)
    # PyTorch keeps the step in float32, and so do we; NAdam's product of momenta as well.
    follow(ours, theirs, a, b, rtol=1e-6 if name == "NAdam" else 1e-9)
    for p, q in zip(a, b, strict=True):
        assert list(theirs.state[q]) == list(ours.state[p])


@pytest.mark.parametrize(
    "name", ["SGD", "Adam", "AdamW", "RMSprop", "NAdam", "RAdam", "Adamax", "Adadelta", "Adagrad", "Rprop", "ASGD"]
)
def test_trajectories_in_float32(name):
    a, b = parameters(dtype=np.float32)
    follow(getattr(td.optim, name)(a, lr=0.05), getattr(torch.optim, name)(b, lr=0.05), a, b, rtol=2e-5)


@pytest.mark.parametrize("kwargs", [{}, {"adjust_lr_fn": "match_rms_adamw", "momentum": 0.8, "nesterov": False}])
def test_muon(kwargs):
    """In bfloat16 inside, so that the two agree to its rounding."""
    for shape in ((6, 4), (3, 7)):
        rng = np.random.default_rng(0)
        start = rng.normal(size=shape).astype(np.float32)
        a, b = td.nn.Parameter(td.tensor(start)), torch.nn.Parameter(torch.tensor(start))
        ours, theirs = td.optim.Muon([a], lr=0.1, **kwargs), torch.optim.Muon([b], lr=0.1, **kwargs)
        follow(ours, theirs, [a], [b], rtol=0.02)
        buffers = ours.state[a]["momentum_buffer"].numpy(), theirs.state[b]["momentum_buffer"].numpy()
        np.testing.assert_allclose(*buffers, rtol=1e-5, atol=1e-6)


def test_groups_have_settings_of_their_own():
    a, b = parameters()
    groups = [[{"params": p[:1]}, {"params": p[1:], "lr": 0.5, "weight_decay": 0.2}] for p in (a, b)]
    follow(td.optim.Adam(groups[0], lr=0.1), torch.optim.Adam(groups[1], lr=0.1), a, b)


def test_state_of_pytorch_is_taken_over():
    a, b = parameters()
    theirs = torch.optim.Adam(b, lr=0.1)
    follow(td.optim.Adam(a, lr=0.1), theirs, a, b, steps=4)
    ours = td.optim.Adam(a, lr=0.7)
    ours.load_state_dict(theirs.state_dict())
    assert ours.param_groups[0]["lr"] == 0.1
    follow(ours, theirs, a, b)


def test_sparse_adam_changes_used_rows_only():
    w = np.random.default_rng(0).normal(size=(6, 3))
    ours, theirs = td.nn.Embedding(6, 3).double(), torch.nn.Embedding(6, 3, sparse=True).double()
    ours.load_state_dict({"weight": w})
    theirs.load_state_dict({"weight": torch.tensor(w)})
    a, b = td.optim.SparseAdam(ours.parameters(), lr=0.1), torch.optim.SparseAdam(theirs.parameters(), lr=0.1)
    for index in ([0, 2, 2], [1, 2], [5, 0]):
        a.zero_grad()
        b.zero_grad()
        (ours(td.tensor(index)) ** 2).sum().backward()
        (theirs(torch.tensor(index)) ** 2).sum().backward()
        a.step()
        b.step()
        np.testing.assert_allclose(ours.weight.detach().numpy(), theirs.weight.detach().numpy(), rtol=1e-7)


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs(search):
    start = np.array([-1.5, 2.0, 0.5, -1.0])

    def run(tensor, parameter, optim, log):
        x = parameter(tensor(start))
        optimizer = optim.LBFGS(
            [x], lr=0.01 if search is None else 1, max_iter=6, history_size=4, line_search_fn=search
        )

        def closure():
            optimizer.zero_grad()
            loss = (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()
            loss.backward()
            return loss

        for _ in range(5):
            optimizer.step(closure)
            log.append(x.detach().numpy().copy())
        return optimizer.state[x]["func_evals"]

    a, b = [], []
    ours = run(td.tensor, td.nn.Parameter, td.optim, a)
    theirs = run(torch.tensor, torch.nn.Parameter, torch.optim, b)
    np.testing.assert_allclose(np.array(a), np.array(b), rtol=1e-6)
    assert ours == theirs


# -- schedules


def rates(package, make, steps=25, momentum=True):
    p = td.nn.Parameter(td.zeros(2)) if package is td else torch.nn.Parameter(torch.zeros(2))
    q = td.nn.Parameter(td.zeros(2)) if package is td else torch.nn.Parameter(torch.zeros(2))
    kwargs = {"momentum": 0.9} if momentum else {}
    optimizer = package.optim.SGD([{"params": [p]}, {"params": [q], "lr": 0.5}], lr=0.1, **kwargs)
    schedule = make(package.optim.lr_scheduler, optimizer)
    seen = []
    for step in range(steps):
        optimizer.step()
        if isinstance(schedule, package.optim.lr_scheduler.ReduceLROnPlateau):
            schedule.step(abs(np.sin(step)) + (step < 10) * (10 - step))
        else:
            schedule.step()
        seen.append([g["lr"] for g in optimizer.param_groups] + [g.get("momentum", 0) for g in optimizer.param_groups])
        assert schedule.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
    return np.array(seen, dtype=np.float64)


SCHEDULES = {
    "lambda": lambda s, o: s.LambdaLR(o, lambda e: 0.9**e),
    "lambdas": lambda s, o: s.LambdaLR(o, [lambda e: 0.9**e, lambda e: 1 / (e + 1)]),
    "multiplicative": lambda s, o: s.MultiplicativeLR(o, lambda e: 0.95),
    "step": lambda s, o: s.StepLR(o, 4, 0.5),
    "multistep": lambda s, o: s.MultiStepLR(o, [3, 7, 7, 12], 0.5),
    "constant": lambda s, o: s.ConstantLR(o, 0.25, 6),
    "linear": lambda s, o: s.LinearLR(o, 0.1, 0.9, 8),
    "exponential": lambda s, o: s.ExponentialLR(o, 0.9),
    "polynomial": lambda s, o: s.PolynomialLR(o, 9, 2.0),
    "cosine": lambda s, o: s.CosineAnnealingLR(o, 7, 0.01),
    "restarts": lambda s, o: s.CosineAnnealingWarmRestarts(o, 3, 2, 0.01),
    "cyclic": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, 5),
    "cyclic2": lambda s, o: s.CyclicLR(o, 0.01, [0.2, 0.3], 3, mode="triangular2"),
    "exp_range": lambda s, o: s.CyclicLR(o, 0.01, 0.2, 3, mode="exp_range", gamma=0.9, cycle_momentum=False),
    "onecycle": lambda s, o: s.OneCycleLR(o, 0.3, total_steps=25),
    "onecycle3": lambda s, o: s.OneCycleLR(
        o, [0.3, 0.7], epochs=5, steps_per_epoch=5, three_phase=True, anneal_strategy="linear"
    ),
    "plateau": lambda s, o: s.ReduceLROnPlateau(o, patience=2, cooldown=1, min_lr=1e-3, factor=0.5),
    "plateau max": lambda s, o: s.ReduceLROnPlateau(o, "max", patience=1, threshold_mode="abs", factor=0.3),
    "chained": lambda s, o: s.ChainedScheduler([s.ConstantLR(o, 0.1, 3), s.ExponentialLR(o, 0.9)]),
    "sequential": lambda s, o: s.SequentialLR(
        o, [s.LinearLR(o, 0.1, total_iters=4), s.CosineAnnealingLR(o, 8), s.ConstantLR(o, 0.5, 3)], [4, 15]
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name):
    np.testing.assert_allclose(rates(td, SCHEDULES[name]), rates(torch, SCHEDULES[name]), rtol=1e-9, atol=1e-15)


@pytest.mark.filterwarnings("ignore")
def test_swalr():
    for strategy in ("cos", "linear"):
        seen = []
        for package in (td, torch):
            p = package.nn.Parameter(package.zeros(2))
            optimizer = package.optim.SGD([p], lr=0.5)
            schedule = package.optim.swa_utils.SWALR(optimizer, 0.05, 4, strategy)
            seen.append([])
            for _ in range(7):
                optimizer.step()
                schedule.step()
                seen[-1].append(optimizer.param_groups[0]["lr"])
        np.testing.assert_allclose(seen[0], seen[1], rtol=1e-9)


@pytest.mark.parametrize("decay", [None, 0.9])
def test_averages_of_weights(decay):
    def run(package, convert):
        model = package.nn.BatchNorm1d(3)
        kwargs = {} if decay is None else {"multi_avg_fn": package.optim.swa_utils.get_ema_multi_avg_fn(decay)}
        average = package.optim.swa_utils.AveragedModel(model, **kwargs)
        rng = np.random.default_rng(0)
        for _ in range(4):
            x = rng.normal(size=(5, 3)).astype(np.float32)
            with package.no_grad():
                model.weight.copy_(convert(rng.normal(size=3).astype(np.float32)))
            model(convert(x))
            average.update_parameters(model)
        return {k: v.detach().numpy() for k, v in average.state_dict().items()}

    ours, theirs = run(td, td.tensor), run(torch, torch.tensor)
    assert list(ours) == list(theirs) or set(ours) == set(theirs)
    for key, value in theirs.items():
        np.testing.assert_allclose(ours[key], value, rtol=1e-5, err_msg=key)
