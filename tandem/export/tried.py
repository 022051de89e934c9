"""Whether an exported graph gives what the function gives for some sizes, by running it."""

from __future__ import annotations

import numpy as np

from tandem.graph.ir import Graph
from tandem.tensors.constructors import asarray
from tandem.tracing.run_graph import run_graph

_TOLERANCE = 1e-3  # of the largest number: sums may be in another order


def gives_the_same(graph: Graph, other: Graph, inputs: list) -> bool:
    """Whether graph gives for these inputs what other gives, or refuses them."""
    wanted = run_graph(other, tuple(inputs))
    try:
        made = run_graph(graph, tuple(inputs))
    except Exception:  # that is no wrong result
        return True
    return all(a.shape == b.shape and _near(a.numpy(), b.numpy()) for a, b in zip(wanted, made, strict=True))


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind not in "fc":
        return bool((a == b).all())
    finite = np.abs(a[np.isfinite(a)])
    return np.allclose(a, b, rtol=_TOLERANCE, atol=_TOLERANCE * (finite.max() if finite.size else 1.0), equal_nan=True)


def with_sizes(tensors: list, sizes: dict) -> list:
    """The tensors of an example, with these sizes of groups of axes: as many elements, or again from the first on."""
    made = list(tensors)
    for group, n in sizes.items():
        for i, axis in group.places:
            t = made[i].detach().cpu().numpy()
            made[i] = asarray(np.take(t, np.arange(n) % t.shape[axis], axis), dtype=made[i].dtype)
    return made
