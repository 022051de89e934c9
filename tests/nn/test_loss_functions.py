"""Losses made of others, where they have corners."""

import pytest

import tandem as td

F = td.nn.functional


@pytest.mark.parametrize("compiled", [False, True])
def test_hinges_push_equal_scores_apart(compiled):
    """At max(x, 0) with x = 0 the gradient is that of x; with none, scores that begin equal would stay so."""

    def ranking(a, b):
        return F.margin_ranking_loss(a, b, td.ones(2), reduction="sum")

    def embedding(a, b):
        return F.hinge_embedding_loss(a, -td.ones(2), margin=1.0, reduction="sum") + 0 * b.sum()

    def triplet(a, b):
        towards, away = b + td.tensor([3.0, 0.0]), b - td.tensor([4.0, 0.0])  # 3 and 4 from a: the margin exactly
        return F.triplet_margin_loss(a[None], towards[None], away[None], margin=1.0, reduction="sum", eps=0.0)

    for loss, expected in [(ranking, [-1.0, -1.0]), (embedding, [-1.0, -1.0]), (triplet, [-2.0, 0.0])]:
        a, b = (td.ones(2, requires_grad=True) for _ in range(2))
        (td.compile(loss) if compiled else loss)(a, b).backward()
        assert expected == pytest.approx(a.grad.tolist()), loss.__name__


def test_soft_margin_loss_does_not_spread_its_input():
    assert F.soft_margin_loss(td.ones(3, 2), td.ones(2)).item() == pytest.approx(0.31326, abs=1e-4)
    with pytest.raises(td.ShapeError, match="target must spread to the input's shape"):
        F.soft_margin_loss(td.ones(3, 1), td.ones(3))
