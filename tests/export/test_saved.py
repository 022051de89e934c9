"""Saved models: one file, no classes needed, any batch size."""

import subprocess
import sys

import numpy as np
import pytest

import tandem as td
from tandem import models


def saved(tmp_path, fn, *args, **options):
    path = tmp_path / "a.model"
    td.export.save(fn, args, path, **options)
    return td.export.load(path)


def same(a, b, tolerance=1e-5):
    np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_a_model_gives_what_it_gave_for_any_batch(tmp_path):
    model = models.LeNet().eval()
    loaded = saved(tmp_path, model, td.randn(1, 1, 28, 28))
    for n in (1, 3, 8):
        x = td.randn(n, 1, 28, 28)
        same(loaded(x), model(x))


def test_it_loads_in_a_process_without_the_class(tmp_path):
    class Net(td.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = td.nn.Linear(3, 2)

        def forward(self, x):
            return {"scores": self.layer(x).relu(), "inputs": (x,)}

    path = tmp_path / "net.model"
    net = Net()
    td.export.save(net, td.ones(1, 3), path)
    code = f"import tandem as td; out = td.export.load({str(path)!r})(td.ones(2, 3)); "
    code += "print(out['scores'].tolist(), len(out['inputs']))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert f"{net(td.ones(2, 3))['scores'].tolist()} 1" == printed.strip()


def test_one_program_serves_all_batches(tmp_path):
    loaded = saved(tmp_path, td.nn.Sequential(td.nn.Linear(4, 8), td.nn.ReLU(), td.nn.Linear(8, 2)), td.randn(3, 4))
    for n in (2, 3, 5, 9):
        loaded(td.randn(n, 4))
        assert 1 == loaded._function.num_plans


def test_it_is_part_of_a_compiled_function(tmp_path):
    model = td.nn.Linear(4, 2)
    loaded = saved(tmp_path, model, td.randn(3, 4))
    whole = td.compile(lambda x: loaded(x) * 2, whole=True)
    x = td.randn(5, 4)
    same(whole(x), model(x) * 2)


def test_gradients_pass_through_it(tmp_path):
    model = td.nn.Linear(4, 2)
    loaded = saved(tmp_path, model, td.randn(3, 4))
    x, y = td.randn(3, 4, requires_grad=True), td.randn(3, 4, requires_grad=True)
    with td.no_grad():
        y.copy_(x)
    loaded(x).sum().backward()
    model(y).sum().backward()
    same(x.grad, y.grad)


def test_inputs_by_name_and_what_does_not_fit(tmp_path):
    loaded = saved(
        tmp_path, lambda a, b: a @ b, td.ones(2, 3), td.ones(3, 4), input_names=["a", "b"], dynamic={"a": (0,)}
    )
    assert (5, 4) == tuple(loaded(b=td.ones(3, 4), a=td.ones(5, 3)).shape)
    with pytest.raises(td.ShapeError, match=r"'b' is f32\[3,4\]; a tensor of shape \(4, 3\) was given"):
        loaded(td.ones(5, 3), td.ones(4, 3))
    with pytest.raises(td.DTypeError, match="'a' is"):
        loaded(td.ones(5, 3, dtype=td.float64), td.ones(3, 4))
    with pytest.raises(td.ValueRangeError, match=r"the inputs \['b'\] are not given"):
        loaded(td.ones(5, 3))


def test_sizes_that_must_be_equal(tmp_path):
    loaded = saved(tmp_path, lambda a, b: a + b, td.ones(2, 3), td.ones(2, 3))
    assert (4, 3) == tuple(loaded(td.ones(4, 3), td.ones(4, 3)).shape)
    with pytest.raises(td.ShapeError, match="sizes that must be equal differ by 1"):
        loaded(td.ones(4, 3), td.ones(5, 3))


def test_a_function_of_one_size_says_so(tmp_path):
    table = td.randn(2, 3)
    with pytest.warns(UserWarning, match="runs with the sizes of its arguments only"):
        loaded = saved(tmp_path, lambda x: x + table, td.ones(2, 3))
    assert (2, 3) == tuple(loaded(td.ones(2, 3)).shape)


def test_folded_weights(tmp_path):
    model = td.nn.Sequential(td.nn.Conv2d(3, 4, 3), td.nn.BatchNorm2d(4)).eval()
    x = td.randn(2, 3, 8, 8)
    loaded = saved(tmp_path, model, x, fold=True)
    assert ["conv_forward"] == [n.op.name for n in loaded.graph.nodes if n.op.name != "input"]
    same(loaded(x), model(x))


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    td.save({"a": td.ones(2)}, path)
    with pytest.raises(td.CheckpointError, match="holds no saved model"):
        td.export.load(path)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "a.model"
    td.export.save(td.nn.Linear(3, 2), td.ones(1, 3), path)
    state = td.load(path)
    for name, value in {
        "format": 99, "graph": "{}", "arguments": ["x", "y"], "weight_names": ["weight"], "weights": [td.ones(2), td.ones(2)],
        "structure": {"kind": "set"}, "outputs": [1],
    }.items():  # fmt: skip
        td.save({**state, name: value}, path)
        with pytest.raises(td.CheckpointError):
            td.export.load(path)


def test_sizes_that_python_code_relies_on_are_fixed(tmp_path):
    def degrees(edges):
        a, b = edges
        return sum((td.arange(4)[:, None] == ends).sum(1) for ends in (a, b))

    edges = td.tensor([[0, 1, 2], [1, 2, 3]])
    td.export.save(degrees, (edges,), tmp_path / "m")
    assert td.export.load(tmp_path / "m")(edges).tolist() == [1, 2, 2, 1]


def test_attention_with_a_mask_of_its_own_kind(tmp_path):
    mask = td.arange(5)[:, None] >= td.arange(5)[None, :]

    def attend(x):
        return td.nn.functional.scaled_dot_product_attention(x, x[:, :1], x[:, :1], attn_mask=mask, enable_gqa=True)

    x = td.randn(2, 4, 5, 8)
    td.export.save(attend, (x,), tmp_path / "m")
    assert td.allclose(td.export.load(tmp_path / "m")(x), attend(x), atol=1e-6)
