"""A loop of primitives."""

import tandem as td

ops = td.graph_ops


def counting_loop(start, limit, frame="loop", step=None, parallel=10):
    """i = start; while i < limit: i = step(i). Gives (result, i inside the body)."""
    bound = ops.enter(limit, frame, is_constant=True, parallel_iterations=parallel)
    i = ops.merge([ops.enter(start, frame, parallel_iterations=parallel)]).output
    out, body = ops.switch(i, ops.loop_cond(i < bound))
    ops.close_loop(i, (step or (lambda b: b + 1))(body))
    return ops.exit(out), body
