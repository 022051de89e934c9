"""Models whose structure follows the data: training steps of a Tree-LSTM over syntax trees, a tagger over packed sequences, and
what deferring a call costs, and what new structures compile.

    python benchmarks/structure.py [trees] [packed] [capture] [new] [--device cuda] [--short]

Trees are statements of Python's standard library. Times are processor time of one thread, the least of interleaved runs, so that
other work on the machine disturbs little; on a CUDA device the time until a step is done, by the clock. PyTorch and DyNet are
measured where they can be imported. --short: what has a bar on a device, in about a minute there.
"""

import argparse
import ast
import os
import random
import sysconfig

import numpy as np
from structured.clock import Clock

import tandem as td
from tandem.models import Tree, TreeLSTM
from tandem.nn import functional as F
from tandem.nn.utils.rnn import pack_sequence
from tandem.tracing import compile as compile_plans

try:
    import torch
except ImportError:
    torch = None
try:
    import dynet_config

    dynet_config.set(mem=2048, autobatch=1)  # read when dynet is imported
    import dynet
except ImportError:
    dynet = None

WIDTH, CLASSES = 150, 5
REPEATS = 7
CLOCK = Clock("cpu")
SHORT = False


# -- data


def syntax_trees(count: int, smallest: int = 20, largest: int = 60) -> list[Tree]:
    """Statements at the top of modules of the standard library: a vertex for each node of the syntax tree."""
    kinds: dict[str, int] = {}

    def tree_of(node) -> Tree:
        kind = kinds.setdefault(type(node).__name__, len(kinds))
        return Tree(kind, [tree_of(child) for child in ast.iter_child_nodes(node)], kind % CLASSES)

    found: list[Tree] = []
    folder = sysconfig.get_paths()["stdlib"]
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".py"):
            continue
        if len(found) >= 3 * count:
            break
        with open(os.path.join(folder, name), encoding="utf8") as file:
            trees = [tree_of(node) for node in ast.parse(file.read()).body]
        found += [tree for tree in trees if smallest <= len(tree) <= largest]
    random.Random(0).shuffle(found)
    return found[:count]


def flattened(trees: list[Tree]):
    """(structure, tokens, roots, labels) of a batch, for vertex programs and levels."""
    tokens, rows, roots = [], [], []

    def visit(tree: Tree) -> int:
        children = [visit(child) for child in tree.children]
        tokens.append(tree.token)
        rows.append(children)
        return len(tokens) - 1

    for tree in trees:
        roots.append(visit(tree))
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    structure = td.Structure(offsets, np.asarray([c for row in rows for c in row], np.int64))
    return structure, np.asarray(tokens), np.asarray(roots), np.asarray([tree.label for tree in trees])


def levels_of(structure):
    """Per level: vertices, their children in one row, and which of the level's vertices each child belongs to; and where a vertex's
    state lies once levels are joined."""
    n = len(structure)
    depth = np.zeros(n, np.int64)
    for v in range(n):  # children come before their parents
        row = structure.children[structure.offsets[v] : structure.offsets[v + 1]]
        if row.size:
            depth[v] = depth[row].max() + 1
    levels = []
    for d in range(depth.max() + 1):
        vertices = np.nonzero(depth == d)[0]
        rows = [structure.children[structure.offsets[v] : structure.offsets[v + 1]] for v in vertices]
        owners = np.repeat(np.arange(len(vertices)), [len(r) for r in rows])
        levels.append((vertices, np.concatenate(rows) if owners.size else np.zeros(0, np.int64), owners))
    place = np.empty(n, np.int64)
    place[np.concatenate([vertices for vertices, _, _ in levels])] = np.arange(n)
    return levels, place


# -- measuring


def put(t):
    """A tensor of either library, on the device that is measured."""
    return t if CLOCK.device == "cpu" else t.to(CLOCK.device)


def show(title: str, best: dict[str, float], per: int, unit: str, peers: tuple[str, ...] = ("torch",)):
    print(f"\n{title}")
    for name, seconds in best.items():
        ratios = [f"{seconds / best[peer]:6.3f} of {peer}" for peer in peers if peer in best and name not in peers]
        text = f"  {name:34s} {seconds / per * 1e6:8.1f} us a {unit}, {seconds * 1e3:9.2f} ms   " + ", ".join(ratios)
        print(text.rstrip(), flush=True)


# -- trees


def by_level(m, cell, embedding, classifier, levels, place, tokens, roots, labels, loss):
    """The same Tree-LSTM batched by hand, for tandem and torch (m)."""
    x = embedding(tokens)
    gates_x, forget_x = cell["iou_x"](x), cell["f_x"](x)
    h_all = c_all = None
    for vertices, children, owners in levels:
        gates = gates_x[vertices]
        kept = 0.0
        if len(children):
            at = place[children]
            h, c = h_all[at], c_all[at]
            summed = m.zeros(len(vertices), WIDTH, device=h.device).index_add(0, owners, h)
            gates = gates + cell["iou_h"](summed)
            forget = m.sigmoid(forget_x[vertices][owners] + cell["f_h"](h))
            kept = m.zeros(len(vertices), WIDTH, device=h.device).index_add(0, owners, forget * c)
        i, o, u = gates.chunk(3, -1)
        c = m.sigmoid(i) * m.tanh(u) + kept
        h = m.sigmoid(o) * m.tanh(c)
        h_all = h if h_all is None else m.cat([h_all, h])
        c_all = c if c_all is None else m.cat([c_all, c])
    return loss(classifier(h_all[place[roots]]), labels)


def vertex_program(cell):
    """The same Tree-LSTM, of one vertex whose products with its input are given."""

    @td.vertex
    def program(children, gates_x, forget_x):
        h, c = children
        i, o, u = (gates_x + cell.iou_h(h.sum(0))).chunk(3, -1)
        c = td.sigmoid(i) * td.tanh(u) + (td.sigmoid(forget_x + cell.f_h(h)) * c).sum(0)
        return td.sigmoid(o) * td.tanh(c), c

    return program


def tandem_steps(trees: list[Tree]) -> dict:
    td.manual_seed(0)
    model = TreeLSTM(200, WIDTH, WIDTH, CLASSES).to(CLOCK.device)
    cell = model.cell
    parameters = list(model.parameters())
    structure, tokens, roots, labels = flattened(trees)
    levels, place = levels_of(structure)
    as_tensor = lambda a: put(td.tensor(np.ascontiguousarray(a)))
    own_levels = [tuple(map(as_tensor, level)) for level in levels]
    place, tokens, roots, labels = map(as_tensor, (place, tokens, roots, labels))
    zero = td.zeros(WIDTH, device=CLOCK.device)

    program = vertex_program(cell)

    def recursion():
        scores = (model(tree) for tree in trees)
        return sum(
            F.cross_entropy(s, td.tensor([tree.label], device=s.device)) for s, tree in zip(scores, trees, strict=True)
        )

    def vertex():
        x = model.embedding(tokens)
        h, _ = program(structure, cell.iou_x(x), cell.f_x(x), state=(zero, zero))
        return F.cross_entropy(model.classifier(h[roots]), labels, reduction="sum")

    def level():
        layers = {name: getattr(cell, name) for name in ("iou_x", "iou_h", "f_x", "f_h")}
        loss = lambda scores, labels: F.cross_entropy(scores, labels, reduction="sum")
        return by_level(td, layers, model.embedding, model.classifier, own_levels, place, tokens, roots, labels, loss)

    def step(loss_of):
        def run():
            for p in parameters:
                p.grad = None
            loss = loss_of()
            loss.backward()
            return float(loss)

        return run

    return {
        "tandem, recursion": step(recursion),
        "tandem, recursion under autobatch": step(td.autobatch(recursion)),
        "tandem, vertex program": step(vertex),
        "tandem, by level": step(level),
    }


def torch_steps(trees: list[Tree]) -> dict:
    torch.manual_seed(0)
    layers = {
        "iou_x": torch.nn.Linear(WIDTH, 3 * WIDTH), "iou_h": torch.nn.Linear(WIDTH, 3 * WIDTH, bias=False),
        "f_x": torch.nn.Linear(WIDTH, WIDTH), "f_h": torch.nn.Linear(WIDTH, WIDTH, bias=False),
    }  # fmt: skip
    embedding, classifier = torch.nn.Embedding(200, WIDTH), torch.nn.Linear(WIDTH, CLASSES)
    for layer in (*layers.values(), embedding, classifier):
        layer.to(CLOCK.device)
    parameters = [p for layer in (*layers.values(), embedding, classifier) for p in layer.parameters()]
    structure, *arrays = flattened(trees)
    levels, place = levels_of(structure)
    as_tensor = lambda a: put(torch.from_numpy(a))
    levels = [tuple(map(as_tensor, level)) for level in levels]
    place, tokens, roots, labels = map(as_tensor, (place, *arrays))
    loss_of = lambda scores, labels: torch.nn.functional.cross_entropy(scores, labels, reduction="sum")

    def state(tree):
        x = embedding(torch.tensor([tree.token], device=CLOCK.device))
        children = [state(child) for child in tree.children]
        gates, kept = layers["iou_x"](x), 0.0
        if children:
            h, c = torch.cat([h for h, _ in children]), torch.cat([c for _, c in children])
            gates = gates + layers["iou_h"](h.sum(0, keepdim=True))
            kept = (torch.sigmoid(layers["f_x"](x) + layers["f_h"](h)) * c).sum(0, keepdim=True)
        i, o, u = gates.chunk(3, -1)
        c = torch.sigmoid(i) * torch.tanh(u) + kept
        return torch.sigmoid(o) * torch.tanh(c), c

    def recursion():
        scores = (classifier(state(tree)[0]) for tree in trees)
        return sum(
            loss_of(s, torch.tensor([tree.label], device=s.device)) for s, tree in zip(scores, trees, strict=True)
        )

    def level():
        return by_level(torch, layers, embedding, classifier, levels, place, tokens, roots, labels, loss_of)

    def step(loss):
        def run():
            for p in parameters:
                p.grad = None
            value = loss()
            value.backward()
            return float(value)

        return run

    return {"torch, recursion": step(recursion), "torch, by level": step(level)}


def dynet_steps(trees: list[Tree]) -> dict:
    collection = dynet.ParameterCollection()
    lookup = collection.add_lookup_parameters((200, WIDTH))
    weights = {name: collection.add_parameters(shape) for name, shape in {
        "iou_x": (3 * WIDTH, WIDTH), "iou_h": (3 * WIDTH, WIDTH), "iou_b": (3 * WIDTH,),
        "f_x": (WIDTH, WIDTH), "f_h": (WIDTH, WIDTH), "f_b": (WIDTH,), "w": (CLASSES, WIDTH), "b": (CLASSES,),
    }.items()}  # fmt: skip

    def state(tree):
        x = lookup[tree.token]
        children = [state(child) for child in tree.children]
        gates = dynet.affine_transform([weights["iou_b"], weights["iou_x"], x])
        if children:
            gates = gates + weights["iou_h"] * dynet.esum([h for h, _ in children])
        i, o, u = (dynet.pick_range(gates, k * WIDTH, (k + 1) * WIDTH) for k in range(3))
        c = dynet.cmult(dynet.logistic(i), dynet.tanh(u))
        if children:
            own = dynet.affine_transform([weights["f_b"], weights["f_x"], x])
            c = c + dynet.esum([dynet.cmult(dynet.logistic(own + weights["f_h"] * h), c) for h, c in children])
        return dynet.cmult(dynet.logistic(o), dynet.tanh(c)), c

    def step():
        dynet.renew_cg()
        losses = [
            dynet.pickneglogsoftmax(dynet.affine_transform([weights["b"], weights["w"], state(tree)[0]]), tree.label)
            for tree in trees
        ]
        loss = dynet.esum(losses)
        value = loss.value()
        loss.backward()
        return value

    return {"dynet, autobatch": step}


def measure_trees():
    for count in (25, 256):
        trees = syntax_trees(count)
        vertices = sum(map(len, trees))
        steps = tandem_steps(trees)
        steps |= torch_steps(trees) if torch else {}
        steps |= dynet_steps(trees) if dynet and CLOCK.device == "cpu" else {}
        if count > 100 or SHORT:  # what is slow is known by then
            steps = {name: step for name, step in steps.items() if not name.endswith("recursion")}
        title = f"Tree-LSTM, width {WIDTH}, training step on {count} syntax trees, {vertices} vertices"
        peers = ("torch, recursion", "torch, by level", "dynet, autobatch")
        show(title, CLOCK.least(steps, REPEATS if count < 100 else 3), vertices, "vertex", peers)


# -- packed sequences


def measure_packed():
    rng = random.Random(0)
    batches = [[rng.randint(5, 100) for _ in range(32)] for _ in range(20)]
    tokens = [
        [np.random.default_rng(i).standard_normal((n, 64), np.float32) for n in lengths]
        for i, lengths in enumerate(batches)
    ]
    labels = [np.random.default_rng(i).integers(0, CLASSES, sum(lengths)) for i, lengths in enumerate(batches)]
    td.manual_seed(0)
    lstm, head = td.nn.LSTM(64, 128).to(CLOCK.device), td.nn.Linear(128, CLASSES).to(CLOCK.device)
    parameters = [*lstm.parameters(), *head.parameters()]

    def own(sequences, labels):
        packed, _ = lstm(pack_sequence(sequences, enforce_sorted=False))
        F.cross_entropy(head(packed.data), labels).backward()
        grads = [p.grad for p in parameters]
        for p in parameters:
            p.grad = None
        return grads  # what nobody gets would not be computed

    compiled = td.compile(own)
    cell = td.nn.LSTMCell(64, 128).to(CLOCK.device)

    @td.autobatch
    def by_cell(sequences, labels):
        """The same, written for one sequence."""
        states = []
        for sequence in sequences:
            hx = None
            for x in sequence:
                hx = cell(x, hx)
                states.append(hx[0])
        F.cross_entropy(head(td.stack(states)), labels).backward()
        for p in (*cell.parameters(), *head.parameters()):
            p.grad = None

    def all_batches(step, data):
        return lambda: [step(*batch) for batch in data]

    data = [
        ([put(td.tensor(s)) for s in sequences], put(td.tensor(l))) for sequences, l in zip(tokens, labels, strict=True)
    ]
    steps = {
        "tandem, eager": all_batches(own, data),
        "tandem, compiled": all_batches(compiled, data),
    }
    if not SHORT:
        steps["tandem, by cell under autobatch"] = all_batches(by_cell, data)
    if torch:
        other = torch.nn.LSTM(64, 128).to(CLOCK.device)
        other_head = torch.nn.Linear(128, CLASSES).to(CLOCK.device)

        def theirs(sequences, labels):
            packed, _ = other(torch.nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False))
            torch.nn.functional.cross_entropy(other_head(packed.data), labels).backward()
            for p in (*other.parameters(), *other_head.parameters()):
                p.grad = None

        theirs_data = [
            ([put(torch.from_numpy(s)) for s in sequences], put(torch.from_numpy(l)))
            for sequences, l in zip(tokens, labels, strict=True)
        ]
        steps["torch"] = all_batches(theirs, theirs_data)
    count = sum(map(sum, batches))
    best = CLOCK.least(steps, 3)
    show("LSTM tagger, 32 packed sequences of 5 to 100, 20 sets of lengths, training", best, count, "token")
    print(f"  programs compiled: {len(compiled._programs.program_runs())}")


# -- new structures


def compilations(step, batches: list) -> list[int]:
    """How many plans each step compiles."""
    found = 0
    real = compile_plans._compile_plan

    def counted(*args):
        nonlocal found
        found += 1
        return real(*args)

    counts = []
    compile_plans._compile_plan = counted
    try:
        for batch in batches:
            found = 0
            step(batch)
            counts.append(found)
    finally:
        compile_plans._compile_plan = real
    return counts


def measure_new(steps: int = 200, size: int = 25):
    trees = syntax_trees(4 * steps + size)
    batches = [trees[4 * i : 4 * i + size] for i in range(steps)]
    td.manual_seed(0)
    model = TreeLSTM(200, WIDTH, WIDTH, CLASSES).to(CLOCK.device)
    optimizer = td.optim.SGD(model.parameters(), lr=0.01)
    zero = td.zeros(WIDTH, device=CLOCK.device)

    def update(loss):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    @td.autobatch
    def recursion(batch):
        scores = (model(tree) for tree in batch)
        update(
            sum(F.cross_entropy(s, td.tensor([t.label], device=s.device)) for s, t in zip(scores, batch, strict=True))
        )

    program = vertex_program(model.cell)

    def vertex(batch):
        structure, *arrays = flattened(batch)
        tokens, roots, labels = (put(td.tensor(np.ascontiguousarray(a))) for a in arrays)
        x = model.embedding(tokens)
        h, _ = program(structure, model.cell.iou_x(x), model.cell.f_x(x), state=(zero, zero))
        update(F.cross_entropy(model.classifier(h[roots]), labels, reduction="sum"))

    print(f"\nNew trees at every step, {steps} steps of {size} trees: plans compiled at the first step, and after it")
    for name, step in (("autobatch", recursion), ("vertex program", vertex)):
        begun = CLOCK.now()
        counts = compilations(step, batches)
        took = (CLOCK.now() - begun) / len(batches)
        print(f"  {name:34s} {counts[0]:5d} {sum(counts[1:]):5d}   {took * 1e3:7.2f} ms a step", flush=True)


# -- what deferring costs


def measure_capture():
    print("\nCapture of one call, us (slices of one tensor, each used once)")
    for count in (100, 1000, 10_000, 32_000):
        x = td.randn(count, 4)

        def calls(x, count=count):
            for i in range(count):
                x[i]

        def with_capture(x, calls=calls):
            calls(x)
            return x

        compiled = td.compile(with_capture)
        compiled(x)
        best = CLOCK.least({"capture": lambda x=x, compiled=compiled: compiled(x)}, 3)
        print(f"  {count:6d} views {best['capture'] / count * 1e6:8.2f}")
    a = td.ones(4)

    def adds(a):
        for _ in range(1000):
            a + 1

    compiled = td.compile(lambda a: (adds(a), a)[1])
    compiled(a)
    deferred = td.autobatch(adds)
    best = CLOCK.least(
        {"td.compile": lambda: compiled(a), "td.autobatch": lambda: deferred(a), "eager": lambda: adds(a)}
    )
    print("  1,000 additions: " + ", ".join(f"{name} {seconds * 1e3:.2f} us each" for name, seconds in best.items()))


def main():
    global CLOCK, SHORT
    parts = {"trees": measure_trees, "packed": measure_packed, "capture": measure_capture, "new": measure_new}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*parts, []])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    CLOCK, SHORT = Clock(options.device), options.short
    td.set_num_threads(1)
    if torch:
        torch.set_num_threads(1)
    for name in options.parts or [part for part in parts if not (SHORT and part == "capture")]:
        parts[name]()


if __name__ == "__main__":
    main()
