"""Candidate samplers, sampled losses, lookups in shards, rows dealt out to parts."""

import numpy as np
import pytest

import tandem as td
from tandem.nn import candidates
from tandem.nn import functional as F
from tests.nn.cases import SAMPLERS


def test_rows_are_dealt_out_and_put_together_again():
    x, part = td.arange(12.0).reshape(6, 2).requires_grad_(), td.tensor([2, 0, 2, 1, 0, 0])
    parts = td.dynamic_partition(x, part, 4)
    assert [p.shape[0] for p in parts] == [3, 1, 2, 0] and parts[0].tolist() == [[2, 3], [8, 9], [10, 11]]
    places = td.dynamic_partition(td.arange(6), part, 4)
    back = td.dynamic_stitch(places, [p * (i + 1) for i, p in enumerate(parts)])
    assert back.detach().tolist() == (x.detach() * (part + 1)[:, None]).tolist()
    back.sum().backward()
    assert x.grad.tolist() == [[3, 3], [1, 1], [3, 3], [2, 2], [1, 1], [1, 1]]


def test_of_several_rows_for_one_place_the_last_counts():
    a, b = td.tensor([1.0, 2.0], requires_grad=True), td.tensor([3.0], requires_grad=True)
    made = td.dynamic_stitch([td.tensor([0, 2]), td.tensor([2])], [a, b])
    assert made.tolist() == [1, 0, 3]
    made.sum().backward()
    assert a.grad.tolist() == [1, 0] and b.grad.tolist() == [1]


def test_what_does_not_fit_is_refused():
    with pytest.raises(td.ShapeError, match="dynamic_partition: data is"):
        td.dynamic_partition(td.ones(3), td.tensor([0, 1]), 2)
    with pytest.raises(td.IndexRangeError, match="index 2 is out of range for axis 0 with size 2"):
        td.dynamic_partition(td.ones(1), td.tensor([2]), 2)


@pytest.mark.parametrize("strategy", ["mod", "div"])
def test_lookups_in_shards_are_lookups_in_the_table(strategy):
    table = td.arange(22.0).reshape(11, 2)
    shards = [table[i::3] for i in range(3)] if strategy == "mod" else [table[:4], table[4:8], table[8:]]
    shards = [s.clone().requires_grad_() for s in shards]
    ids = td.tensor([[10, 0, 3], [4, 10, 7]])
    rows = F.embedding_lookup(shards, ids, strategy)
    assert rows.detach().tolist() == table[ids].tolist()
    (rows * 2).sum().backward()
    assert all(s.grad.is_sparse for s in shards)
    assert sum(s.grad._nnz() for s in shards) == 6  # only what was looked up
    dense = np.zeros((11, 2))
    np.add.at(dense, ids.numpy().ravel(), 2)
    made = [s.grad.to_dense().numpy() for s in shards]
    whole = np.concatenate(made) if strategy == "div" else np.stack([made[i % 3][i // 3] for i in range(11)])
    np.testing.assert_allclose(whole, dense)


@pytest.mark.parametrize("name", SAMPLERS)
def test_sampled_scores_estimate_the_sum_over_all_classes(name):
    """The mean over samples of the sum of corrected scores is the denominator of the full softmax."""
    td.manual_seed(2)
    sampler, scores = SAMPLERS[name](50), td.randn(50)
    full, found = scores.exp().sum().item(), []
    for _ in range(600):
        made = sampler.sample(td.tensor([[0]]), 10, unique=False)
        found.append((scores[made.sampled_candidates] - made.sampled_expected_count.log()).exp().sum().item())
    assert abs(np.mean(found) - full) < 4 * np.std(found) / np.sqrt(len(found))


def test_with_all_classes_sampled_the_loss_is_the_full_one():
    td.manual_seed(0)
    w, b, x = td.randn(9, 4), td.randn(9), td.randn(3, 4)
    labels = td.tensor([2, 0, 8])
    every = td.arange(9)
    sure = candidates.Candidates(every, td.ones(3, 1), td.ones(9))
    loss = F.sampled_softmax_loss(w, b, labels[:, None], x, 9, 9, sampled_values=sure)
    full = F.cross_entropy(x @ w.T + b, labels, reduction="none")
    np.testing.assert_allclose(loss.numpy(), full.numpy(), rtol=1e-5)


def test_training_by_samples_lowers_the_full_loss():
    """Losses of samples go down the gradient of the full one; tables are in shards and have sparse gradients."""
    td.manual_seed(0)
    shards = [td.nn.Parameter(td.zeros(50, 8)) for _ in range(2)]
    biases = [td.nn.Parameter(td.zeros(50)) for _ in range(2)]
    x = td.randn(32, 8)
    labels = td.randint(0, 100, (32, 1))

    def full():
        w = td.stack([s.detach() for s in shards], 1).reshape(100, 8)
        return F.cross_entropy(x @ w.T, labels[:, 0]).item()

    before = full()
    for loss in (F.sampled_softmax_loss, F.nce_loss):
        optimizer = td.optim.Adagrad([*shards, *biases], lr=0.5)
        for _ in range(10):
            optimizer.zero_grad()
            loss(shards, biases, labels, x, 20, 100).mean().backward()
            assert shards[0].grad.is_sparse and shards[0].grad._nnz() <= 32 + 20
            optimizer.step()
    assert full() < 0.5 * before


def test_classic_names_in_deferred_graphs():
    import tandem.v1 as tf

    with tf.Graph().as_default(), tf.Session() as session:
        shards = [tf.constant(np.arange(6.0, dtype=np.float32).reshape(3, 2) + 10 * i) for i in range(2)]
        rows = tf.nn.embedding_lookup(shards, tf.constant([0, 3, 4]))
        np.testing.assert_allclose(session.run(rows), [[0, 1], [12, 13], [4, 5]])
        w, b, x = (
            tf.constant(np.ones((30, 2), np.float32)),
            tf.constant(np.zeros(30, np.float32)),
            tf.constant([[1.0, 2.0]]),
        )
        loss = tf.nn.sampled_softmax_loss(w, b, tf.constant([[3]]), x, 10, 30)
        other = tf.nn.nce_loss(w, b, tf.constant([[3]]), x, 10, 30)
        made = [session.run([loss, other]) for _ in range(2)]
        assert made[0][0].shape == (1,) and np.isfinite(made[0]).all() and made[0][0] != made[1][0]


@pytest.mark.parametrize("strategy", ["mod", "div"])
@pytest.mark.parametrize("wrong", [7, -1])
def test_ids_of_no_row_are_refused_whatever_the_shards(strategy, wrong):
    shards = [td.ones(4, 2), td.ones(3, 2)]
    text = f"embedding_lookup: index {wrong} is out of range for axis 0 with size 7"
    with pytest.raises(td.IndexRangeError, match=text):
        F.embedding_lookup(shards, td.tensor([0, wrong]), strategy)
    with td.Graph() as graph:
        ids = td.placeholder(td.int64, (None,), name="ids")
        found = F.embedding_lookup([td.Variable(s, name=f"shard{k}") for k, s in enumerate(shards)], ids, strategy)
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    assert session.run(found, {ids: [0, 6]}).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(td.IndexRangeError, match=text):
        session.run(found, {ids: [0, wrong]})
