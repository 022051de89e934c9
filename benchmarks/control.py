"""Loops: an empty while_loop and an LSTM language model by scan, against jax (while_loop, scan under jit) and PyTorch's nn.LSTM.

control.py [--jax-python PATH] [--torch-python PATH] [--threads N] [--rounds N]

Each framework runs in a process of its own; rounds take turns; the least time counts, or with --cpu
the least CPU time (on a busy machine, with one thread).
"""

import argparse
import json
import os
import subprocess
import sys
import time

VOCABULARY, WIDTH, STEPS, BATCH, ITERATIONS = 10_000, 256, 35, 20, 1_000_000


def best(run, seconds: float, clock) -> float:
    run()
    least, end, count = float("inf"), time.perf_counter() + seconds, 0
    while count < 3 or time.perf_counter() < end:
        start = clock()
        run()
        least = min(least, clock() - start)
        count += 1
    return least * 1e3


def tandem_cases():
    import numpy as np

    import tandem as td

    count = td.compile(lambda x: td.while_loop(lambda v: v < ITERATIONS, lambda v: v + 1.0, x))
    zero = td.tensor(0.0)
    yield "while", lambda: count(zero).item()

    generator = np.random.default_rng(0)
    draw = lambda *shape: td.tensor(generator.uniform(-1 / 16, 1 / 16, shape), dtype=td.float32, requires_grad=True)
    embed, head, bias = draw(VOCABULARY, WIDTH), draw(VOCABULARY, WIDTH), draw(VOCABULARY)
    layers = [(draw(4 * WIDTH, WIDTH), draw(4 * WIDTH, WIDTH), draw(4 * WIDTH), draw(4 * WIDTH)) for _ in range(2)]
    x = td.tensor(generator.integers(0, VOCABULARY, (STEPS, BATCH)))
    y = td.tensor(generator.integers(0, VOCABULARY, STEPS * BATCH))

    def layer(h, wi, wh, bi, bh):
        def cell(state, x):
            h, c = state
            i, f, g, o = (x @ wi.T + bi + h @ wh.T + bh).chunk(4, -1)
            c = td.sigmoid(f) * c + td.sigmoid(i) * td.tanh(g)
            h = td.sigmoid(o) * td.tanh(c)
            return (h, c), h

        return td.scan(cell, (td.zeros(BATCH, WIDTH), td.zeros(BATCH, WIDTH)), h)[1]

    @td.compile
    def train():
        h = embed[x]
        for weights in layers:
            h = layer(h, *weights)
        loss = td.nn.functional.cross_entropy(td.linear(h.reshape(-1, WIDTH), head, bias), y)
        parameters = [embed, head, bias, *(w for weights in layers for w in weights)]
        grads = td.autograd.grad(loss, parameters)
        with td.no_grad():
            for p, g in zip(parameters, grads, strict=True):
                p.sub_(g)
        return loss.detach()

    yield "lstm_lm", train


def jax_cases():
    import jax
    import jax.numpy as jnp

    count = jax.jit(lambda x: jax.lax.while_loop(lambda v: v < ITERATIONS, lambda v: v + 1.0, x))
    yield "while", lambda: count(0.0).block_until_ready()

    key = jax.random.PRNGKey(0)
    draw = lambda *shape: jax.random.uniform(key, shape, minval=-1 / 16, maxval=1 / 16)
    parameters = {
        "embed": draw(VOCABULARY, WIDTH), "head": draw(VOCABULARY, WIDTH), "bias": draw(VOCABULARY),
        "layers": [(draw(4 * WIDTH, WIDTH), draw(4 * WIDTH, WIDTH), draw(4 * WIDTH), draw(4 * WIDTH)) for _ in range(2)],
    }  # fmt: skip
    x = jax.random.randint(key, (STEPS, BATCH), 0, VOCABULARY)
    y = jax.random.randint(key, (STEPS * BATCH,), 0, VOCABULARY)

    def loss_of(p):
        h = p["embed"][x]
        for wi, wh, bi, bh in p["layers"]:
            gates = h @ wi.T + bi

            def cell(state, g, wh=wh, bh=bh):
                h, c = state
                i, f, g, o = jnp.split(g + h @ wh.T + bh, 4, -1)
                c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
                h = jax.nn.sigmoid(o) * jnp.tanh(c)
                return (h, c), h

            _, h = jax.lax.scan(cell, (jnp.zeros((BATCH, WIDTH)), jnp.zeros((BATCH, WIDTH))), gates)
        logits = h.reshape(-1, WIDTH) @ p["head"].T + p["bias"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    @jax.jit
    def train(p):
        loss, grads = jax.value_and_grad(loss_of)(p)
        return loss, jax.tree.map(lambda a, b: a - b, p, grads)

    def step():
        nonlocal parameters
        _, parameters = train(parameters)
        jax.block_until_ready(parameters)

    yield "lstm_lm", step


def torch_cases():
    import torch
    import torch.nn.functional as functional
    from models import Models
    from torch import optim

    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    yield "lstm_lm", Models(torch, torch.nn, functional, optim, fused=True).lstm_lm()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--jax-python")
    parser.add_argument("--torch-python")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--worker")
    options = parser.parse_args()
    clock = time.process_time if options.cpu else time.perf_counter
    if options.worker:
        cases = {"tandem": tandem_cases, "jax": jax_cases, "torch": torch_cases}[options.worker]()
        print(json.dumps({name: best(run, options.seconds, clock) for name, run in cases}))
        return
    pythons = {"tandem": sys.executable, "jax": options.jax_python, "torch": options.torch_python}
    environment = {**os.environ, "TANDEM_NUM_THREADS": str(options.threads), "OMP_NUM_THREADS": str(options.threads)}
    if options.threads == 1:
        environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    found: dict[tuple[str, str], float] = {}
    for _ in range(options.rounds):
        for framework, python in pythons.items():
            if not python:
                continue
            command = [python, __file__, "--worker", framework, "--seconds", str(options.seconds)]
            done = subprocess.run(command + ["--cpu"] * options.cpu, capture_output=True, text=True, env=environment)
            if done.returncode:
                print(f"{framework}: {done.stderr.strip().splitlines()[-1]}")
                continue
            for case, ms in json.loads(done.stdout.strip().splitlines()[-1]).items():
                found[framework, case] = min(ms, found.get((framework, case), float("inf")))
    for case in ("while", "lstm_lm"):
        peers = {f: ms for (f, c), ms in found.items() if c == case and f != "tandem"}
        ours = found["tandem", case]
        ratio = f", {ours / min(peers.values()):.2f} of the best" if peers else ""
        print(f"{case:8} ours {ours:8.2f} ms   " + "   ".join(f"{f} {ms:8.2f}" for f, ms in peers.items()) + ratio)


if __name__ == "__main__":
    main()
