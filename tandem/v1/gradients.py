"""gradients with the classic signature."""

from tandem import session as _session
from tandem.session.build import graph_of as _graph_of
from tandem.v1.wrap import named as _named


def gradients(
    ys, xs, grad_ys=None, name=None, colocate_gradients_with_ops=False, gate_gradients=False, aggregation_method=None
):
    """Gradients of the sum of ys with respect to each of xs; None where ys do not depend on it.

    The last three arguments say how another library computes the same numbers, and are accepted without effect.
    """
    first = ys[0] if isinstance(ys, (list, tuple)) else ys
    return _named(_graph_of(first), name, lambda: _session.gradients(ys, xs, grad_ys))
