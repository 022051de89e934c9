"""`td.graph_ops`: the primitives that branches and loops are made of, for wiring by hand, and both of them wired so."""

from tandem.session.primitives import *  # noqa: F403
from tandem.session.wired import wire_cond, wire_while


def cond(pred, true_fn, false_fn, name: str = "cond"):
    """true_fn() or false_fn(), wired from Switch and Merge. Unlike td.cond the functions may do things: change variables, use
    queues, call Python; only what the chosen function does happens. There are no gradients.

    Functions use tensors from around them, and give tensors or operations, in the same containers.
    """
    return wire_cond(pred, true_fn, false_fn, name)


def while_loop(cond, body, loop_vars, parallel_iterations: int = 10, name: str = "while"):
    """Repeats variables = body(*variables) while cond(*variables) holds, wired from the primitives. Unlike td.while_loop the
    functions may do things: change variables, use queues, call Python. There are no gradients. A size that changes must be
    unknown (None) from the start. Gives the variables at the end, as a list or tuple like loop_vars.
    """
    return wire_while(cond, body, loop_vars, parallel_iterations, name)
