"""Examples of static graphs, as programs: they learn what they say."""

import importlib.util
import pathlib

import numpy as np

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gan_with_two_train_operations_on_one_graph():
    module = load("gan_static")
    session, parts = module.main(steps=200, show=lambda line: None)
    assert 1.3 < parts["radius"].mean() < 2.7  # noise alone gives points near the origin
    batch = {parts["real"]: module.ring(np.random.default_rng(1), 32)}
    values = lambda variables: [session.value_of(v).numpy() for v in variables]
    for train, own, other in [("train_d", "discriminator", "generator"), ("train_g", "generator", "discriminator")]:
        before_own, before_other = values(parts[own]), values(parts[other])
        session.run(parts[train], batch)
        assert any((a != b).any() for a, b in zip(before_own, values(parts[own]), strict=True))
        for a, b in zip(before_other, values(parts[other]), strict=True):
            np.testing.assert_array_equal(a, b)


def test_policy_gradient_with_rewards_from_outside():
    rewards, policy, world = load("policy_gradient").main(steps=150, show=lambda line: None)
    assert policy == [2, 2, 2, 1, 0, 0, 0]
    assert np.mean(rewards[-20:]) > 0.8 > np.mean(rewards[:5]) + 0.3
    assert world.asked == 150  # once a run
