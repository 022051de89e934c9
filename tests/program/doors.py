"""The doors by which a graph comes in, each with the same computation behind it: a few layers, a loss, and where it can, an update.

`door(name, device, memory_budget)` gives an object with step() -> floats, explain(), memory().
"""

import numpy as np

import tandem as td

ROWS, WIDTH, LAYERS = 6, 8, 4


def layers(x, w, library=td):
    """Large intermediate results that wait for a use at the end, so that a budget has something to choose."""
    wide = library.concatenate([w] * 6, 1)
    kept = []
    for _ in range(LAYERS):
        x = library.tanh(x @ w) * 1.0
        kept.append(x @ wide)
    total = x
    for k in reversed(kept):
        total = (total @ w) * 0.5 + k @ wide.T * 0.1
    return total


def data(device):
    x = np.linspace(-1, 1, ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    w = np.eye(WIDTH, dtype=np.float32) * 0.5 + 0.01
    return td.tensor(x, device=device), td.tensor(w, device=device)


def result(made) -> list[float]:
    return [float(v) for v in np.asarray(made.detach().cpu().numpy(), np.float64).reshape(-1)]


class Compiled:
    """td.compile: a training step."""

    def __init__(self, device, memory_budget):
        self.x, self.w = data(device)
        self.w.requires_grad_()

        @lambda fn: td.compile(fn, memory_budget=memory_budget)
        def step(x):
            loss = layers(x, self.w).mean()
            loss.backward()
            with td.no_grad():
                self.w.sub_(0.1 * self.w.grad)
            self.w.grad = None
            return loss

        self.compiled = step

    def step(self):
        return result(self.compiled(self.x))

    def explain(self):
        return self.compiled.explain()

    def memory(self):
        return self.compiled.memory()


class Session:
    """td.Session: a training step."""

    def __init__(self, device, memory_budget):
        self.data, w = data(device)
        graph = td.Graph()
        with graph, td.device(device):
            self.x = td.placeholder(td.float32, (None, WIDTH), name="x")
            variable = td.Variable(w.cpu().numpy(), name="w")
            loss = layers(self.x, variable).mean()
            (gradient,) = td.gradients(loss, [variable])
            update = td.assign_sub(variable, 0.1 * gradient)
            start = td.global_variables_initializer()
        self.session = td.Session(graph, memory_budget=memory_budget)
        self.session.run(start)
        self.fetches = [loss, update]

    def step(self):
        return result(self.session.run(self.fetches, {self.x: self.data})[0])

    def explain(self):
        return self.session.explain(self.fetches, [self.x])

    def memory(self):
        return self.session.memory(self.fetches, [self.x])


class Wired:
    """A hand-wired branch, with a group of operators in it."""

    def __init__(self, device, memory_budget):
        self.data, self.w = data(device)
        graph = td.Graph()
        with graph:
            self.x = td.placeholder(td.float32, (None, WIDTH), name="x")
            self.weight = td.placeholder(td.float32, (WIDTH, WIDTH), name="w")
            self.p = td.placeholder(td.bool, (), name="p")
            no, yes = td.graph_ops.switch(self.x, self.p)
            weight = td.graph_ops.switch(self.weight, self.p)[1]
            taken, _ = td.graph_ops.merge([no, layers(yes, weight)])
            self.loss = taken
        self.session = td.Session(graph, memory_budget=memory_budget)

    def step(self):
        fed = {self.x: self.data, self.weight: self.w, self.p: True}
        return result(self.session.run(self.loss, fed))

    def explain(self):
        return self.session.explain(self.loss, [self.x, self.weight, self.p])

    def memory(self):
        return self.session.memory(self.loss, [self.x, self.weight, self.p])


class Loaded:
    """A graph that was saved and loaded."""

    def __init__(self, device, memory_budget):
        self.given = data(device)
        first = td.Graph()
        with first:
            x = td.placeholder(td.float32, (ROWS, WIDTH), name="x")
            w = td.placeholder(td.float32, (WIDTH, WIDTH), name="w")
            y = layers(x, w)
        with td.switches(SKIP="all", CACHE=0):  # as it was written, so that there is something for passes to do
            session = td.Session(first)
            session.run(y, {x: data("cpu")[0], w: data("cpu")[1]})
            text = session.compiled_graph(y, [x, w]).to_json()
        self.graph = type(first).from_json(text)
        self.memory_budget = memory_budget

    def step(self):
        numbers = [0] * (len(self.graph.inputs) - 2)
        return result(self.graph.run(*self.given, *numbers, memory_budget=self.memory_budget)[0])

    def explain(self):
        return self.graph.explain()

    def memory(self):
        from tandem.tracing.run_graph import reports_of

        return reports_of(self.graph)[0].largest()


class Transformed:
    """vmap; jvp and loops outside of compiled functions go the same way."""

    def __init__(self, device, memory_budget):
        self.x, self.w = data(device)
        self.memory_budget = memory_budget
        self.made = None

    def step(self):
        with td.programs(memory_budget=self.memory_budget) as made:
            y = td.vmap(lambda row: layers(row.reshape(1, -1), self.w)[0])(self.x)
        self.made = made if self.made is None or made else self.made
        return result(y)

    def explain(self):
        return str(self.made)

    def memory(self):
        return self.made.largest()


DOORS = {"compile": Compiled, "session": Session, "wired": Wired, "loaded": Loaded, "transform": Transformed}


def door(name: str, device: str = "cpu", memory_budget: float | None = None):
    return DOORS[name](device, memory_budget)
