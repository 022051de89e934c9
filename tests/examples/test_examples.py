"""The programs in examples/, small: they learn what they say. Tests of sessions, control flow and data run theirs."""

import importlib.util
import pathlib

import numpy as np
import pytest

import tandem as td

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Lines(list):
    """Takes what an example would print."""

    def __call__(self, line):
        self.append(line)


@pytest.mark.parametrize("compiled", [False, True])
def test_digits_cnn(compiled):
    pytest.importorskip("sklearn")
    losses, right = load("digits_cnn").main(epochs=4, width=16, compiled=compiled, show=(lines := Lines()))
    assert losses[0] > 2 * losses[-1]
    assert right > 0.85
    assert "test images are wrong" in "".join(lines)


def test_digits_cluster():
    pytest.importorskip("sklearn")
    right = load("digits_cluster").main(num_steps=120, engine="threads", show=(lines := Lines()))
    assert right > 0.85
    assert "120 steps of 2 workers" in lines[0] and "W_1" in lines[1]


def test_digits_servers():
    pytest.importorskip("sklearn")
    right, reports = load("digits_servers").main(steps=120, engine="threads", slow=0.01, show=(lines := Lines()))
    assert right["async"] > 0.8 and right["backup"] > 0.8
    assert reports[2][0]["applied"] < 60 and "came too late" in lines[1]


def test_recommend_sharded():
    losses, right, rows = load("recommend_sharded").main(people=60, items=50, steps=80, engine="threads", show=Lines())
    assert losses[-1] < 0.5 * losses[0] and right > 0.75
    assert sum(rows) == 60 and min(rows) > 10


def test_alexnet_two_devices():
    two, one, crossed, plan = load("alexnet_two_devices").main(
        width=4, batch=8, steps=4, engine="threads", show=Lines()
    )
    assert two == pytest.approx(one, rel=1e-4) and two[-1] < two[0]
    assert crossed > 8 * 8 * 8 * 8 * 4  # at least one tower's values, once
    assert plan.seconds <= plan.alone


def test_char_gpt():
    losses, text = load("char_gpt").main(
        steps=60, batch=8, context=24, layers=2, heads=2, width=32, sample=40, show=Lines()
    )
    assert losses[0] > 6  # bits of 96 letters that are equally likely: 6.6
    assert sum(losses[-5:]) / 5 < 5
    assert text.startswith("The ")
    assert len(text) == 44


def test_gpt_sharded():
    example = load("gpt_sharded")
    settings = {"steps": 2, "batch": 4, "context": 8, "layers": 1, "compiled": False}
    alone = example.train(**settings)

    def work():
        return example.train(td.distributed.Mesh((2, 2), ("data", "model")), **settings)

    for losses in td.distributed.spawn(work, 4, engine="threads", timeout=300):
        assert losses == pytest.approx(alone, rel=1e-3)


def test_ncf():
    found = load("ncf").main(users=120, items=150, liked=16, epochs=8, batch=256, show=Lines())
    for name in ("factors", "ncf"):
        losses, hits = found[name]
        assert losses[-1] < losses[0] - 0.1
        assert hits > found["popular"][1] > 0.1


def test_gcn_karate():
    pytest.importorskip("networkx")
    losses, right, groups = load("gcn_karate").main(show=Lines())
    assert losses[-1] < 0.1 < 0.6 < losses[0]
    assert right > 0.85
    assert (groups[0].item(), groups[33].item()) == (0, 1)  # what it was told


def test_tree_lstm():
    module = load("tree_lstm")
    losses, right, _ = module.main(epochs=4, trees=100, depth=3, width=16, batch=5, show=Lines())
    assert losses[0] > 2 * losses[-1]
    assert right > 0.75
    leaf = [module.Tree(value, [], value) for value in (0, 1)]
    assert module.written(module.Tree(5, [leaf[1], module.Tree(2, [leaf[0]])])) == "xor(T, not(F))"
    first = [
        module.main(epochs=1, trees=10, depth=2, width=8, batch=5, way=way, show=Lines())[0] for way in module.WAYS
    ]
    np.testing.assert_allclose(first, [first[0]] * 3, rtol=1e-4)  # three ways to write one thing


def test_custom_operator():
    errors, losses = load("custom_operator").main(steps=60, show=Lines())
    assert max(errors.values()) < 1e-8
    assert losses[-1] < losses[0] / 2


def test_custom_optimizer():
    pytest.importorskip("sklearn")
    difference, runs = load("custom_optimizer").main(steps=40, show=Lines())
    assert difference < 1e-8
    for losses in runs.values():
        assert losses[-1] < 0.9 * losses[0]
    assert runs["Adan", False] == pytest.approx(runs["Adan", True], rel=1e-4)


def test_transfer_weights():
    pytest.importorskip("sklearn")
    losses, right = load("transfer_weights").main(width=8, count=200, size=32, epochs=60, show=(lines := Lines()))
    assert losses[-1] < losses[0] / 3
    assert right > 0.4  # by chance: 0.1
    assert any("fc.weight: the state has (1000, 64), the module (10, 64)" in line for line in lines)


def test_every_example_is_run_by_a_test():
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    missing = [path.stem for path in EXAMPLES.glob("*.py") if path.stem not in tests]
    assert not missing


def test_elastic_resnet():
    losses = load("elastic_resnet").main(epochs=4, samples=80, show=(lines := Lines()))
    assert losses[-1] < 0.6 * losses[0]
    assert len(lines) == 4
    assert "1 ranks" in lines[0]
