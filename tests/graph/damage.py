"""Changes graphs that were saved at random, and loads and runs what comes of it. A program of its own, as it may crash:

    python -m tests.graph.damage SEED COUNT

Prints one JSON line: how many were refused, how many ran, and what ended in an error that is none of ours.
"""

from __future__ import annotations

import collections
import copy
import faulthandler
import json
import random
import sys
import traceback

import tandem as td
from tandem.errors import InternalError, TandemError
from tandem.graph.ir import Graph, Node
from tandem.graph.serialize import Reader
from tandem.graph.symbolic import hint
from tandem.ops.define import PRIMITIVES
from tests.processes import limit_memory

F = td.nn.functional
NUMBERS = [-1, 0, 1, 2, 3, 5, 17, -7, 1000, 10**7, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63), 2**63, 10**30]
THINGS = [None, True, "x", "sum", "max", 0.5, [], {}, ["tuple"], ["tuple", 1], ["tuple", 10**7, 0], ["dtype", "int32"],
          ["dtype", "bool"], ["float", "nan"], ["sym", [1, 0]], ["sym", [-3, 0, 0]],
          ["type", "int64", ["tuple", 3], False]]  # fmt: skip
DTYPES = ["float32", "float64", "float16", "int64", "int32", "uint8", "bool", "complex64"]


def train_step():
    td.manual_seed(0)
    w, b = td.rand(3, 4), td.rand(3)

    def step(x, w, b):
        loss = F.cross_entropy(F.gelu(x @ w.T + b), td.arange(x.shape[0]) % 3)
        return loss, *td.func.grad(lambda w: F.layer_norm(x @ w.T, (3,)).square().sum())(w).unbind(0)[:1]

    return step, [td.rand(5, 4), w, b]


def recur(x, h):
    h, ys = td.scan(lambda h, r: ((h + r).tanh(), h * 2), h, x)
    return td.cond(h.sum() > 0, lambda: h * 2, lambda: h + 1), ys[1:]


PROGRAMS = {
    "slices": (lambda x: (x[1:3] * 2, td.flip(x, [0]), F.pad(x, (1, 2)), td.roll(x, 1, 0)), [td.rand(4, 4)]),
    "conv": (
        lambda x, w, b: F.avg_pool2d(F.max_pool2d(F.conv2d(x, w, b, stride=2, padding=1).relu(), 2), 1),
        [td.rand(2, 3, 8, 8), td.rand(4, 3, 3, 3), td.rand(4)],
    ),
    "products": (lambda x, y: (x @ y + 1).softmax(-1).sum(0), [td.rand(2, 3, 4), td.rand(2, 4, 5)]),
    "index": (
        lambda x, i: (x[i] * 2, td.index_add(x, 0, i, x[i]), td.gather(x, 0, i[:, None])),
        [td.rand(6, 3), td.tensor([0, 5, 2])],
    ),
    "reductions": (
        lambda x: (x.sum(0), x.argmax(1), x.prod(), x.cumsum(1), td.sort(x)[0], td.topk(x, 2)[1], td.concat([x, x], 1)),
        [td.rand(4, 5)],
    ),
    "integers": (lambda x: ((x << 1) & 7, x // 3, td.bitwise_not(x).to(td.float32).exp()), [td.arange(12)]),
    "random": (lambda x: F.dropout(x, 0.5) + td.rand(3), [td.rand(4, 3)]),
    "flow": (recur, [td.rand(4, 3), td.rand(3)]),
    "attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k), [td.rand(1, 2, 4, 8), td.rand(1, 2, 6, 8)]),
    "matrices": (lambda x: (td.linalg.solve(x @ x.mT + 1, x), td.linalg.qr(x)[1]), [td.rand(3, 3) + td.eye(3)]),
    "train": train_step(),
}  # fmt: skip


def compiled(name: str) -> Graph:
    fn, arguments = PROGRAMS[name]
    made = td.compile(fn)
    made(*arguments)
    return made.graph()


def inputs_for(graph: Graph, rng: random.Random | None = None) -> list:
    """Tensors of the types that the graph's inputs have, wherever they came from; of other sizes now and then, with rng."""
    given = []
    for v in graph.inputs:
        shape = tuple(
            hint(d) if rng is None or isinstance(d, int) else rng.choice([hint(d), hint(d), 2, 7]) for d in v.shape
        )
        if td.prod(td.tensor([1, *shape])).item() > 10**6:
            raise td.ValueRangeError(None, "too large to try")
        x = td.rand(shape) * 4 if v.dtype.is_inexact else td.randint(-3, 9, shape)
        given.append(x.to(v.dtype))
    return given


def change_text(document: dict, rng: random.Random):
    """Something in the file becomes something else."""
    at, key, parent = document[rng.choice(["nodes"] * 8 + ["outputs", "mutations", "symbols", "guards"])], None, None
    while isinstance(at, (list, dict)) and at and (parent is None or rng.random() < 0.9):
        parent, key = at, rng.choice(list(at) if isinstance(at, dict) else range(len(at)))
        at = at[key]
    if parent is None:
        return
    if isinstance(at, int) and rng.random() < 0.7:
        parent[key] = rng.choice([at + 1, at - 1, -at, at * 2, *NUMBERS])
    elif isinstance(at, str) and rng.random() < 0.7:
        parent[key] = rng.choice(DTYPES if at in DTYPES else [*PRIMITIVES])
    elif isinstance(parent, list) and rng.random() < 0.3:
        del parent[key]
    else:
        parent[key] = copy.deepcopy(rng.choice(THINGS))


def change_node(graph: Graph, rng: random.Random) -> Graph:
    """One node is another, and all types are what they would be then: a file that somebody took care with."""
    result = Graph(graph.symbols, graph.name)
    made: dict = {}
    chosen = rng.choice([n for n in graph.nodes if n.op.name != "input"])
    reader = Reader(graph.symbols, [graph.symbols._make({(("sym", i),): 1}) for i in range(len(graph.symbols.hints))])
    for node in graph.nodes:
        op, inputs = node.op, [made[v] for v in node.inputs]
        if node is chosen:
            what = rng.random()
            if what < 0.3 and made:
                values = list(made.values())
                inputs = [rng.choice(values) if rng.random() < 0.6 else v for v in inputs] or [rng.choice(values)]
            elif what < 0.4:
                inputs = inputs[:-1] if rng.random() < 0.5 else [*inputs, *inputs[:1]]
            elif what < 0.5 or not op._fields:
                other = rng.choice(graph.nodes).op if rng.random() < 0.5 else None
                op = other or PRIMITIVES[rng.choice(list(PRIMITIVES))](*[getattr(op, f) for f in op._fields])
            else:
                fields = [getattr(op, f) for f in op._fields]
                k = rng.randrange(len(fields))
                fields[k] = other_value(fields[k], rng, reader)
                op = type(op)(*fields)
        types = op.infer(*[v.type for v in inputs])
        types = types if isinstance(types, tuple) else (types,)
        new = Node(op, tuple(inputs), types, None, len(result.nodes))
        result.nodes.append(new)
        made.update(zip(node.outputs, new.outputs, strict=False))
        if op.name == "input":
            result.inputs.append(new.outputs[0])
    result.outputs = [None if v is None else made[v] for v in graph.outputs]
    result.mutations = [(p, made[v]) for p, v in graph.mutations]
    return result


def other_value(x, rng: random.Random, reader: Reader):
    if isinstance(x, tuple) and x and rng.random() < 0.8:
        k = rng.randrange(len(x))
        return (*x[:k], other_value(x[k], rng, reader), *x[k + 1 :])
    if isinstance(x, bool):
        return not x
    if isinstance(x, int):
        return rng.choice([x + 1, x - 1, -x, x * 2, *NUMBERS])
    if isinstance(x, Graph):
        return change_node(x, rng)
    if isinstance(x, str):
        return rng.choice(["sum", "max", "argmax", "set", "add", "prod", "r", "zzz"])
    return reader.value(rng.choice(THINGS[:-1]))


def attempt(text: str, rng: random.Random) -> str:
    try:
        graph = Graph.from_json(text)
    except ValueError:
        return "refused"
    if '"while"' in text:
        return "loaded"  # it may run forever
    try:
        graph.run(*inputs_for(graph, rng))
    except (TandemError, InternalError, MemoryError) as error:
        return "failed" if not isinstance(error, InternalError) else "failed inside"
    return "ran"


def main(seed: int, count: int):
    faulthandler.enable()
    limit_memory(12 << 30)
    graphs = {name: compiled(name) for name in PROGRAMS}
    texts = {name: graph.to_json() for name, graph in graphs.items()}
    found, raw = collections.Counter(), []
    for turn in range(count):
        rng = random.Random(seed * 1_000_003 + turn)
        name = list(graphs)[turn % len(graphs)]
        try:
            if rng.random() < 0.4:
                document = json.loads(texts[name])
                change_text(document, rng)
                text = json.dumps(document)
            else:
                text = change_node(graphs[name], rng).to_json()
        except Exception:
            found["not made"] += 1  # no file says such a thing
            continue
        try:
            found[attempt(text, rng)] += 1
        except Exception as error:
            raw.append([turn, name, type(error).__name__, str(error)[:300], traceback.format_exc()[-600:]])
    print(json.dumps({**found, "raw": raw}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
