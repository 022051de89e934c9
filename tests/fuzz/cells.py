"""Random models of cells: functions of several operators, called many times over random structures, as td.autobatch finds them.

Functions are written as text, so that each call has a line of its own, as in code of users. Structures, the operands that calls
share, parameters, and what is held of a function's inside differ from batch to batch.
"""

import random

import numpy as np

import tandem as td
from tandem import nn

WIDTH = 4
LINES = [
    "{new} = td.tanh({a})",
    "{new} = td.sigmoid({a}) * {b}",
    "{new} = {a} + {b}",
    "{new} = {a} * {a} - {b}",
    "{new} = m.first({a})",
    "{new} = td.tanh(m.second({a}) + {b})",
    "{new} = {a} @ m.weight.mT",
    "{new} = {a} @ m.weight",
    "{new} = ({a} @ m.weight[:, :2]).repeat(2)",
    "{new} = td.cat([{a}[:1], {b}[1:]])",
    "{new} = td.cat(m.wide({a}).chunk(2)[::-1])[2:6]",
    "{new} = m.wide({a}).reshape(2, 4)[1]",
    "{new} = m.wide({a}.unsqueeze(0)).squeeze(0)[::2]",
    "{new} = td.stack([{a}, {b}]).sum(0)",
    "{new} = td.stack([{a}, {b}, {a}]).mT.amax(1)",
    "{new} = td.softmax({a}, -1) * {b}",
    "{new} = m.table.weight[i % 5] * {a}",
    "{new} = m.table(td.tensor([i % 5])).squeeze(0) + {a}",
    "{new} = {a}.detach() * 0.5 + {b}",
    "{new} = td.where({a} > 0, {a}, {b} * 0.1)",
    "{new} = {a}.clone()\n    {new} += {b}",
]


class Parameters(nn.Module):
    def __init__(self, seed: int):
        super().__init__()
        td.manual_seed(seed)
        self.first, self.second, self.wide = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 8)
        self.weight = nn.Parameter(td.randn(WIDTH, WIDTH) * 0.5)
        self.table = nn.Embedding(5, WIDTH)
        self.double()


def make_function(rng: random.Random):
    """A function of parameters, a number and two vectors, which gives two vectors."""
    names = ["x", "y"]
    lines = []
    for k in range(rng.randint(2, 7)):
        new = f"v{k}"
        lines.append(rng.choice(LINES).format(new=new, a=rng.choice(names), b=rng.choice(names)))
        names.append(new)
    text = "def cell(m, i, x, y):\n    " + "\n    ".join(lines) + f"\n    return {names[-1]}, {rng.choice(names)}\n"
    scope = {"td": td}
    exec(compile(text, f"<cell {rng.random()}>", "exec"), scope)
    return scope["cell"], text


class Model:
    def __init__(self, seed: int):
        rng = random.Random(seed)
        self.functions = [make_function(rng) for _ in range(rng.randint(1, 3))]
        self.layers = [Parameters(seed + k) for k in range(2)]
        self.parameters = [p for layer in self.layers for p in layer.parameters()]
        self.seed = seed

    def text(self) -> str:
        return "\n".join(text for _, text in self.functions)

    def examples(self, batch: int) -> list:
        """For each example: its vectors; for each call which function, parameters and vectors it takes, and what happens then."""
        rng = random.Random(self.seed * 1000 + batch)
        numbers = np.random.default_rng(self.seed * 1000 + batch)
        made = []
        for _ in range(rng.randint(2, 9)):
            vectors = [td.tensor(numbers.standard_normal(WIDTH)) for _ in range(rng.randint(1, 3))]
            calls = []
            for k in range(rng.randint(1, 8)):
                known = len(vectors) + 2 * k
                then = rng.choices(["", "held", "read", "no_grad"], [20, 1, 1, 1])[0]
                calls.append((rng.randrange(len(self.functions)), rng.randrange(2), rng.randrange(9),
                              rng.randrange(known), rng.randrange(known), then))  # fmt: skip
            made.append((vectors, calls))
        return made

    def step(self, examples: list, scope) -> list:
        """The loss, gradients of parameters and of what was held."""
        held = []
        with scope:
            total = td.tensor(0.0, dtype=td.float64)
            for vectors, calls in examples:
                values = list(vectors)
                for function, layer, i, x, y, then in calls:
                    with td.no_grad() if then == "no_grad" else td.enable_grad():
                        made = self.functions[function][0](self.layers[layer], i, values[x], values[y])
                    values += [v / (1.0 + (v * v).sum()) for v in made]
                    if then == "held" and values[-2].requires_grad:
                        held.append(values[-2])
                    if then == "read" and values[-1].sum().item() > 0:
                        values[-1] = values[-1] * 2.0
                total = total + (values[-1] * values[-2]).sum() + values[-1].sum()
        if not total.requires_grad:
            return [total]
        return [total, *td.autograd.grad(total, [*self.parameters, *held], allow_unused=True)]


def check(seed: int, batches: int = 4):
    model = Model(seed)
    for batch in range(batches):
        examples = model.examples(batch)
        expected = model.step(examples, td.enable_grad())
        found = model.step(examples, td.autobatch())
        for k, (a, b) in enumerate(zip(found, expected, strict=True)):
            where = f"seed {seed}, batch {batch}, result {k}\n{model.text()}"
            if a is None and b is None:
                continue
            a, b = td.zeros_like(b) if a is None else a, td.zeros_like(a) if b is None else b  # a cell's unused result
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-8, atol=1e-10, err_msg=where)
