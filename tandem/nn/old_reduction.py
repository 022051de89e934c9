"""Losses with the whole signatures of PyTorch: `size_average` and `reduce`, from before there was `reduction`."""

from __future__ import annotations

import functools
import inspect

from tandem.ops.loss import old_reduction

# The order of arguments in torch.nn.functional.
_ORDERS = {
    "binary_cross_entropy": "input target weight size_average reduce reduction",
    "binary_cross_entropy_with_logits": "input target weight size_average reduce reduction pos_weight",
    "cosine_embedding_loss": "input1 input2 target margin size_average reduce reduction",
    "cross_entropy": "input target weight size_average ignore_index reduce reduction label_smoothing",
    "hinge_embedding_loss": "input target margin size_average reduce reduction",
    "kl_div": "input target size_average reduce reduction log_target",
    "margin_ranking_loss": "input1 input2 target margin size_average reduce reduction",
    "multi_margin_loss": "input target p margin weight size_average reduce reduction",
    "multilabel_margin_loss": "input target size_average reduce reduction",
    "multilabel_soft_margin_loss": "input target weight size_average reduce reduction",
    "nll_loss": "input target weight size_average ignore_index reduce reduction",
    "poisson_nll_loss": "input target log_input full size_average eps reduce reduction",
    "soft_margin_loss": "input target size_average reduce reduction",
    "triplet_margin_loss": "anchor positive negative margin p eps swap size_average reduce reduction",
}


def _with_old_arguments(loss, order: list[str]):
    at = order.index("size_average")

    @functools.wraps(loss, updated=())
    def call(*args, **kwargs):
        if len(args) <= at and "size_average" not in kwargs and "reduce" not in kwargs:
            return loss(*args, **kwargs)
        given = {**dict(zip(order, args)), **kwargs}
        old = given.pop("size_average", None), given.pop("reduce", None)
        given["reduction"] = old_reduction(*old, given.get("reduction", "mean"))
        return loss(**given)

    known = inspect.signature(loss).parameters
    old = {
        name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=None)
        for name in ("size_average", "reduce")
    }
    anywhere = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [(known.get(name) or old[name]).replace(kind=anywhere) for name in order]
    more = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, p in known.items() if name not in order]
    call.__signature__ = inspect.Signature(parameters + more)
    return call


def take_old_arguments(namespace: dict) -> None:
    """Replaces the losses of a namespace by those that take PyTorch's old arguments, too."""
    for name, order in _ORDERS.items():
        namespace[name] = _with_old_arguments(namespace[name], order.split())
