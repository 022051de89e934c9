"""Random nested programs of cond, while_loop, scan, fori_loop and map: eager = compiled = deferred, values and gradients."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tandem as td

D = td.float64
N = 3  # every tensor is (N,): bodies can then be nested in any order

leaves = st.sampled_from(["x", "y", "w", "sum"])


def expressions(children):
    """Programs as nested tuples. `children` are what programs are made of: functions of a vector and what is around it."""
    pair = st.tuples(children, children)
    return st.one_of(
        st.tuples(st.just("add"), pair),
        st.tuples(st.just("mul"), pair),
        st.tuples(st.just("sin"), children),
        st.tuples(st.just("matmul"), children),
        st.tuples(st.just("cond"), st.tuples(children, children, children)),
        st.tuples(st.just("scan"), st.tuples(st.booleans(), children, children)),
        st.tuples(st.just("while"), st.tuples(st.integers(0, 4), children)),
        st.tuples(st.just("fori"), st.tuples(st.integers(0, 3), children)),
        st.tuples(st.just("map"), children),
    )


programs = st.recursive(leaves, expressions, max_leaves=8)


def run(program, env):
    """The program's value; env: the vectors "x" and "y", the matrix "m", the vector "w" that everything closes over."""
    if program == "sum":
        return env["x"].sum() + env["y"] * 0.5
    if isinstance(program, str):
        return env[program]
    kind, parts = program
    if kind == "add":
        return run(parts[0], env) + run(parts[1], env)
    if kind == "mul":
        return run(parts[0], env) * run(parts[1], env) * 0.3
    if kind == "sin":
        return td.sin(run(parts, env))
    if kind == "matmul":
        return td.tanh(run(parts, env) @ env["m"])
    if kind == "cond":
        test, yes, no = parts
        return td.cond(run(test, env).sum() > 0.1, lambda: run(yes, env), lambda: run(no, env))
    if kind == "scan":
        reverse, step, out = parts

        def once(carry, row):
            inner = {**env, "x": carry, "y": row}
            return td.tanh(run(step, inner)), run(out, inner)

        rows = td.stack([env["x"], env["y"], env["w"]])
        carry, ys = td.scan(once, env["y"], rows, reverse=reverse)
        return carry + ys.sum(0) * 0.2
    if kind == "while":
        most, body = parts
        grown = td.while_loop(
            lambda v: (v * v).sum() < 6,
            lambda v: v * 1.3 + td.sin(run(body, {**env, "x": v})) * 0.5,
            env["x"],
            maximum=most,
        )
        return td.tanh(grown)
    if kind == "fori":
        count, body = parts
        return td.fori_loop(0, count, lambda i, v: td.sin(run(body, {**env, "y": v})) + i * 0.1, env["y"])
    mapped = td.map(lambda row: td.sin(run(parts, {**env, "x": row})), td.stack([env["x"], env["y"]]))
    return mapped.sum(0)


def arrays(seed):
    generator = np.random.default_rng(seed)
    return {k: generator.standard_normal((N, N) if k == "m" else (N,)) * 0.8 for k in ("x", "y", "w", "m")}


def value_and_gradients(program, env):
    result = run(program, env)
    total = (td.cos(result) * result).sum()
    grads = td.autograd.grad(total, list(env.values()), create_graph=True, allow_unused=True)
    grads = [td.zeros_like(v) if g is None else g for g, v in zip(grads, env.values(), strict=True)]
    second = sum((g * g).sum() for g in grads)
    twice = [None] * len(grads)
    if second.requires_grad:
        twice = td.autograd.grad(second, list(env.values()), allow_unused=True)
    twice = [td.zeros_like(v) if g is None else g for g, v in zip(twice, env.values(), strict=True)]
    return [result, *grads, *twice]


@given(programs, st.integers(0, 3))
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_eager_compiled_and_deferred_agree(program, seed):
    data = arrays(seed)

    def tensors():
        return {k: td.tensor(v, requires_grad=True) for k, v in data.items()}

    expected = [t.detach().numpy() for t in value_and_gradients(program, tensors())]
    inputs = tensors()
    compiled = td.compile(lambda: [t.detach() for t in value_and_gradients(program, inputs)], whole=True)()
    graph = td.Graph()
    with graph:
        env = {k: td.placeholder(D, v.shape) for k, v in data.items()}
        result = run(program, env)
        if isinstance(result, td.Tensor):
            result = graph.hold(result)
        total = (td.cos(result) * result).sum()
        fetched = [result]
        grads = [
            td.zeros_like(v) if g is None else g
            for g, v in zip(td.gradients(total, list(env.values())), env.values(), strict=True)
        ]
        fetched += grads
        again = td.gradients(sum((g * g).sum() for g in grads), list(env.values()))
        fetched += [td.zeros_like(v) if g is None else g for g, v in zip(again, env.values(), strict=True)]
    deferred = td.Session(graph).run(fetched, {env[k]: v for k, v in data.items()})
    for name, made in (("compiled", compiled), ("deferred", deferred)):
        for a, b in zip(expected, made, strict=True):
            np.testing.assert_allclose(b.numpy(), a, rtol=1e-7, atol=1e-9, err_msg=f"{name} {program}")
