"""Optimisers that change the rows of a sparse gradient alone."""

import numpy as np
import pytest

import tandem as td

INDEX = [[1, 4, 1], [7, 7, 0]]


def table(sparse, rows=10, **settings):
    td.manual_seed(0)
    return td.nn.Embedding(rows, 3, sparse=sparse, **settings)


def loss_of(layer, index=INDEX):
    return (layer(td.tensor(index)) ** 2 * td.arange(1.0, 4.0)).sum()


OPTIMIZERS = {
    "sgd": lambda p: td.optim.SGD(p, lr=0.1),
    "sgd maximize": lambda p: td.optim.SGD(p, lr=0.1, maximize=True),
    "momentum": lambda p: td.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adagrad": lambda p: td.optim.Adagrad(p, lr=0.1, lr_decay=0.1, initial_accumulator_value=0.1),
    "sparse_adam": lambda p: td.optim.SparseAdam(p, lr=0.1),
}


def trained(name, sparse, compiled, dtype=td.float32):
    layer = table(sparse).to(dtype)
    optimizer = OPTIMIZERS[name](layer.parameters())

    def step(index):
        optimizer.zero_grad()
        loss = (layer(index) ** 2).sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    run = td.compile(step) if compiled else step
    for index in ([1, 1, 4, 9], [4, 2, 2, 2], [1, 3, 5, 7]):
        run(td.tensor(index))
    return layer.weight.detach().to(td.float32).numpy(), optimizer.state[layer.weight]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_by_row_are_dense_steps(name, compiled):
    expected, state = trained(name, False, False)
    weight, sparse_state = trained(name, True, compiled)
    np.testing.assert_allclose(weight, expected, rtol=1e-5, atol=1e-6)
    for key in state:
        np.testing.assert_allclose(sparse_state[key].numpy(), state[key].numpy(), rtol=1e-5, atol=1e-6, err_msg=key)


def test_steps_by_row_in_sixteen_bits():
    np.testing.assert_allclose(
        trained("adagrad", True, True, td.bfloat16)[0],
        trained("adagrad", False, False, td.bfloat16)[0],
        rtol=1e-2,
        atol=1e-2,
    )


@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_touches_the_rows_of_the_batch_alone(compiled):
    """Rows that no index names are not even read: they hold NaN here, which a dense update would keep but not leave in state."""
    layer = table(True)
    layer.weight.data[2:] = float("nan")
    optimizer = td.optim.SparseAdam(layer.parameters())

    def step():
        loss = layer(td.tensor([0, 1, 1])).sum()
        loss.backward()
        optimizer.step()

    (td.compile(step) if compiled else step)()
    state = optimizer.state[layer.weight]
    assert np.isfinite(layer.weight.detach().numpy()[:2]).all() and (state["exp_avg"].numpy()[2:] == 0).all()


@pytest.mark.parametrize("kind", ["Adam", "AdamW", "RMSprop", "Adadelta", "Adamax", "NAdam", "RAdam"])
def test_optimisers_that_change_all_rows_refuse(kind):
    layer = table(True)
    loss_of(layer).backward()
    with pytest.raises(td.UnsupportedError, match=f"{kind}: a gradient is sparse(.|\n)*SparseAdam"):
        getattr(td.optim, kind)(layer.parameters()).step()


@pytest.mark.parametrize("kind", ["Adagrad", "SGD"])
def test_weight_decay_does_not_go_with_sparse_gradients(kind):
    layer = table(True)
    loss_of(layer).backward()
    with pytest.raises(td.ValueRangeError, match="weight_decay does not go with sparse gradients"):
        getattr(td.optim, kind)(layer.parameters(), lr=0.1, weight_decay=0.1).step()
