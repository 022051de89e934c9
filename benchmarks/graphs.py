"""Training steps of networks over graphs, and of models with large tables, beside PyTorch, DGL and PyG.

    python benchmarks/graphs.py [--cases gcn,gat,ncf] [--nodes 40000 --edges 600000] [--debian] [--device cuda]

Peers are torch (scatter-based code and sparse.mm), dgl 2.1 (with dgl.graphbolt left out) and torch_geometric, those that are
installed. Every library runs the same steps on the same graph in this process, in turn; printed is the least CPU time of a step of
one thread, and its ratio to ours. --debian: the graph of packages that `apt-cache dumpavail` lists.
--device cuda: times by the clock until the device is done; PyTorch and PyG compiled as well (gcn and gat).
"""

from __future__ import annotations

import argparse
import functools
import re
import subprocess
import sys
import types

import numpy as np
from structured.clock import Clock

import tandem as td

REPEATS = 7
CLOCK = Clock("cpu")


def debian_graph():
    """(number of packages, edges (2, m)): who depends on whom, both directions."""
    text = subprocess.run(["apt-cache", "dumpavail"], capture_output=True, text=True, check=True).stdout
    packages = dict(re.findall(r"^Package: (\S+)\n((?:.+\n)*)", text, re.M))
    number = {name: i for i, name in enumerate(packages)}
    pairs = set()
    for name, body in packages.items():
        for line in re.findall(r"^(?:Pre-)?Depends: (.+)$", body, re.M):
            for other in re.findall(r"(?:^|[,|])\s*([^\s,|(:]+)", line):
                if other in number:
                    pairs.add((number[name], number[other]))
    edges = np.array(sorted(pairs)).T
    return len(packages), np.concatenate([edges, edges[::-1]], 1)


def random_graph(nodes: int, edges: int):
    return nodes, np.random.default_rng(0).integers(0, nodes, (2, edges))


class Task:
    """A graph with features and labels of nodes."""

    def __init__(self, nodes: int, edges, features: int = 64, classes: int = 16):
        rng = np.random.default_rng(1)
        self.nodes, self.edges, self.features, self.classes = nodes, edges, features, classes
        self.x = rng.standard_normal((nodes, features)).astype(np.float32)
        self.y = rng.integers(0, classes, nodes)


def put(t):
    """A tensor of either library, on the device that is measured."""
    return t if CLOCK.device == "cpu" else t.to(CLOCK.device)


def training(lib, model, run, y, compiled: bool = False):
    model.to(CLOCK.device)
    optimizer = lib.optim.Adam(model.parameters(), lr=1e-2)

    def step():
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(run(model), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return lib.compile(step) if compiled else step


def tandem_steps(kind: str, task: Task):
    td.manual_seed(0)
    x, y, edges = put(td.tensor(task.x)), put(td.tensor(task.y)), put(td.tensor(task.edges))
    for compiled in (False, True):
        if kind == "gcn":
            model = td.models.GCN(task.features, 64, task.classes, dropout=0.0)
        else:
            model = td.models.GAT(task.features, 16, task.classes, heads=4, dropout=0.0)
        yield "tandem compiled" if compiled else "tandem", training(td, model, lambda m: m(x, edges), y, compiled)


def torch_steps(kind: str, task: Task):
    import torch
    from torch.nn import functional as F

    torch.manual_seed(0)
    torch.set_num_threads(1)
    x, y, edges = put(torch.tensor(task.x)), put(torch.tensor(task.y)), put(torch.tensor(task.edges))
    loops = torch.arange(task.nodes, device=x.device)
    zeros = functools.partial(torch.zeros, device=x.device)
    source, target = torch.cat([edges, torch.stack([loops, loops])], 1)
    root = zeros(task.nodes).index_add(0, target, torch.ones(len(target), device=x.device)).rsqrt()
    weight = root[source] * root[target]

    class GCN(torch.nn.Module):
        def __init__(self, product):
            super().__init__()
            self.a, self.b = torch.nn.Linear(task.features, 64), torch.nn.Linear(64, task.classes)
            self.product = product

        def forward(self, x):
            return self.product(self.b(self.product(self.a(x)).relu()))

    class GATLayer(torch.nn.Module):
        def __init__(self, inner, out, heads):
            super().__init__()
            self.lin, self.heads, self.out = torch.nn.Linear(inner, heads * out, bias=False), heads, out
            self.src, self.dst = (torch.nn.Parameter(torch.randn(1, heads, out) * 0.1) for _ in range(2))

        def forward(self, x):
            y = self.lin(x).view(task.nodes, self.heads, self.out)
            scores = F.leaky_relu((y * self.src).sum(-1)[source] + (y * self.dst).sum(-1)[target], 0.2)
            index = target[:, None].expand_as(scores)
            top = zeros(task.nodes, self.heads).fill_(-torch.inf).scatter_reduce(0, index, scores.detach(), "amax")
            raised = (scores - top[target]).exp()
            total = zeros(task.nodes, self.heads).index_add(0, target, raised)
            sent = y[source] * (raised / total[target])[:, :, None]
            return zeros(task.nodes, self.heads, self.out).index_add(0, target, sent).flatten(1)

    if kind == "gcn":
        matrix = torch.sparse_coo_tensor(
            torch.stack([target, source]), weight, (task.nodes, task.nodes)
        ).to_sparse_csr()

        def scattered(z):
            return zeros(task.nodes, z.shape[1]).index_add(0, target, z[source] * weight[:, None])

        yield "torch sparse.mm", training(torch, GCN(lambda z: matrix @ z), lambda m: m(x), y)
        model = lambda: GCN(scattered)
    else:
        model = lambda: torch.nn.Sequential(
            GATLayer(task.features, 16, 4), torch.nn.ELU(), GATLayer(64, task.classes, 1)
        )
    yield "torch scatter", training(torch, model(), lambda m: m(x), y)
    if CLOCK.device != "cpu":
        yield "torch scatter compiled", training(torch, torch.compile(model().to(CLOCK.device)), lambda m: m(x), y)


def dgl_steps(kind: str, task: Task):
    sys.modules.setdefault("dgl.graphbolt", types.ModuleType("dgl.graphbolt"))
    import dgl
    import torch
    from dgl.nn import GATConv, GraphConv

    torch.manual_seed(0)
    x, y = torch.tensor(task.x), torch.tensor(task.y)
    graph = dgl.add_self_loop(
        dgl.graph((torch.tensor(task.edges[0]), torch.tensor(task.edges[1])), num_nodes=task.nodes)
    )

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            if kind == "gcn":
                self.a, self.b = GraphConv(task.features, 64), GraphConv(64, task.classes)
            else:
                self.a, self.b = GATConv(task.features, 16, 4), GATConv(64, task.classes, 1)

        def forward(self, x):
            if kind == "gcn":
                return self.b(graph, self.a(graph, x).relu())
            return self.b(graph, torch.nn.functional.elu(self.a(graph, x).flatten(1))).mean(1)

    yield "dgl", training(torch, Model(), lambda m: m(x), y)


def pyg_steps(kind: str, task: Task):
    import torch
    from torch_geometric.nn import GATConv, GCNConv

    torch.manual_seed(0)
    x, y, edges = put(torch.tensor(task.x)), put(torch.tensor(task.y)), put(torch.tensor(task.edges))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            if kind == "gcn":
                self.a, self.b = GCNConv(task.features, 64, cached=True), GCNConv(64, task.classes, cached=True)
            else:
                self.a, self.b = GATConv(task.features, 16, 4), GATConv(64, task.classes)

        def forward(self, x):
            act = torch.relu if kind == "gcn" else torch.nn.functional.elu
            return self.b(act(self.a(x, edges)), edges)

    yield "pyg", training(torch, Model(), lambda m: m(x), y)
    if CLOCK.device != "cpu":
        yield "pyg compiled", training(torch, torch.compile(Model().to(CLOCK.device)), lambda m: m(x), y)


class NCF:
    """Neural collaborative filtering with the numbers of MovieLens 20M, batches of 4096 pairs."""

    USERS, ITEMS, BATCH = 138_493, 26_744, 4096

    @classmethod
    def step(cls, lib, kind: str, sparse: bool, compiled: bool):
        nn = lib.nn

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.tables = nn.ModuleList(
                    [nn.Embedding(n, d, sparse=sparse) for d in (64, 128) for n in (cls.USERS, cls.ITEMS)]
                )
                self.mlp = nn.Sequential(
                    nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()
                )
                self.head = nn.Linear(128, 1)

            def forward(self, user, item):
                a, b, c, d = self.tables
                deep = self.mlp(lib.cat([c(user), d(item)], -1))
                return self.head(lib.cat([a(user) * b(item), deep], -1)).squeeze(-1)

        lib.manual_seed(0)
        model, optim = Model().to(CLOCK.device), lib.optim
        of_tables = {"adam": optim.SparseAdam if sparse else optim.Adam, "adagrad": optim.Adagrad}[kind]
        of_rest = {"adam": optim.Adam, "adagrad": optim.Adagrad}[kind]
        rest = [*model.mlp.parameters(), *model.head.parameters()]
        optimizers = of_tables(list(model.tables.parameters())), of_rest(rest)
        batches = [
            tuple(map(put, (lib.randint(0, n, (cls.BATCH,)) for n in (cls.USERS, cls.ITEMS))))
            + (put(lib.rand(cls.BATCH)),)
            for _ in range(3)
        ]

        def once(user, item, label):
            for optimizer in optimizers:
                optimizer.zero_grad()
            loss = nn.functional.binary_cross_entropy_with_logits(model(user, item), label)
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            return loss.detach()

        run, turn = (lib.compile(once) if compiled else once), [0]

        def step():
            turn[0] += 1
            return run(*batches[turn[0] % 3])

        return step

    @classmethod
    def steps(cls, kind: str):
        yield "tandem sparse", cls.step(td, kind, True, False)
        yield "tandem sparse compiled", cls.step(td, kind, True, True)
        yield "tandem dense compiled", cls.step(td, kind, False, True)
        try:
            import torch
        except ImportError:
            return
        torch.set_num_threads(1)
        yield "torch sparse", cls.step(torch, kind, True, False)


def measure(steps) -> dict[str, float]:
    """Least milliseconds of each step; all of them in turn."""
    waited = {name: lambda step=step: float(step()) for name, step in steps}
    return {name: 1e3 * seconds for name, seconds in CLOCK.least(waited, REPEATS).items()}


def show(title: str, times: dict[str, float]):
    ours = times.get("tandem compiled", times.get("tandem sparse compiled"))
    print(title)
    for name, ms in times.items():
        print(f"  {name:24s} {ms:9.1f} ms   ours / this {ours / ms:5.2f}", flush=True)


def peers(kind: str, task: Task):
    yield from tandem_steps(kind, task)
    for make in (torch_steps, dgl_steps, pyg_steps) if CLOCK.device == "cpu" else (torch_steps, pyg_steps):
        try:
            yield from make(kind, task)
        except ImportError as error:
            print(f"  left out: {make.__name__.removesuffix('_steps')} ({error})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="gcn,gat,ncf")
    parser.add_argument("--nodes", type=int, default=40_000)
    parser.add_argument("--edges", type=int, default=600_000)
    parser.add_argument("--debian", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    options = parser.parse_args()
    global CLOCK
    CLOCK = Clock(options.device)
    td.set_num_threads(1)
    for case in options.cases.split(","):
        if case == "ncf":
            for kind in ("adam", "adagrad"):
                show(f"ncf, {kind}", measure(NCF.steps(kind)))
            continue
        nodes, edges = debian_graph() if options.debian else random_graph(options.nodes, options.edges)
        task = Task(nodes, edges)
        show(f"{case}, {task.nodes:,} nodes, {task.edges.shape[1]:,} edges", measure(peers(case, task)))


if __name__ == "__main__":
    main()
