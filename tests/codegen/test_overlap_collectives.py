"""overlap_collectives: what begins early and is waited for late. Note [Overlap] in codegen/overlap.py."""

import numpy as np
import pytest

import tandem as td
import tandem.ops as F
from tandem import distributed as dist
from tandem.codegen.cuda.target import CudaTarget
from tandem.codegen.peak import memory_of
from tandem.distributed.group import ProcessGroup
from tandem.ops.collective import AllGather, AllReduce, ReduceScatter
from tests.codegen.lowering import lowered
from tests.codegen.ops import add

X = np.ones((6, 4), np.float32)
BOTH = "prefetch_gathers,overlap_collectives"


def reduced(x, beside=True):
    return AllReduce(0, 2, "sum", 0, beside)(x)


def mm(a, b):
    return F.Matmul()(a, b)


def shown(steps) -> list[str]:
    """Steps by their names, as they are printed."""
    return [repr(s)[1:-1].partition(":")[0].partition(" x ")[0] for s in steps]


def steps_of(function, arrays, **options):
    return shown(lowered(function, arrays, "overlap_collectives", epilogues=True, **options).steps)


def test_a_reduction_begins_when_its_operand_is_there_and_is_awaited_where_it_is_read():
    def backward(a, b):
        total = reduced(mm(a, b))
        h = mm(b, a)
        k = mm(h, h)
        return k, add(total, 1.0)

    a = np.ones((4, 4), np.float32)
    made = steps_of(backward, [a, a])
    begun, awaited = made.index("begin all_reduce"), made.index("await all_reduce")
    assert made[:begun] == ["matmul"]  # its own alone
    assert made[begun + 1 : awaited].count("matmul") == 2
    assert len(made[awaited:]) == 2  # it and the addition


def test_a_collective_that_somebody_reads_at_once_stays_one_step():
    assert steps_of(lambda a: add(reduced(mm(a, a)), 1.0), [np.ones((4, 4), np.float32)])[1] == "collective"


def test_on_the_processors_of_one_host_nothing_is_taken_apart():
    def step(a):
        return add(reduced(mm(a, a), False), 1.0), mm(a, a)

    assert not [s for s in steps_of(step, [np.ones((4, 4), np.float32)]) if s.startswith(("begin", "await"))]


def test_what_is_written_waits_for_who_reads_it():
    """The operand is an input that the program overwrites."""

    def step(p, q):
        whole = AllGather(0, 2, (), 7, True)(p)
        other, new = mm(q, q), add(p, 1.0)
        return mm(whole, whole), new, other

    arrays = [np.ones((2, 4), np.float32), np.ones((4, 4), np.float32)]
    made = steps_of(step, arrays, mutate={0: 1})
    assert made[:2] == ["begin all_gather", "matmul"]
    assert made.index("await all_gather") < made.index("add")


def test_few_whole_gradients_are_held_at_a_time():
    def backward(*gs):
        return [ReduceScatter(0, 2, "sum", g.shape[0] // 2, (), i + 1, True)(mm(g, g)) for i, g in enumerate(gs)]

    made = steps_of(backward, [np.ones((8, 8), np.float32) for _ in range(6)])
    under_way = most = 0
    for s in made:
        under_way += s.startswith("begin") - s.startswith("await")
        most = max(most, under_way)
    assert most == 2 and made.count("begin reduce_scatter") >= 4


def test_collectives_keep_their_order():
    def step(a):
        first = reduced(mm(a, a))
        return reduced(add(a, 1.0)), first

    lowering = lowered(step, [np.ones((4, 4), np.float32)], "overlap_collectives", epilogues=True)
    order = [s.node for s in lowering.steps if getattr(s, "routine", "") in ("collective", "collective_begin")]
    assert order == [n for n in lowering.graph.nodes if n.op.effect]


def test_devices_wait_by_themselves():
    assert not CudaTarget.awaits_collectives


# -- whole steps, on ranks that are threads and say that collectives run beside


@pytest.fixture
def beside(monkeypatch):
    monkeypatch.setattr(ProcessGroup, "runs_beside", lambda self, x: True)


def model_of(layers):
    td.manual_seed(0)
    return td.nn.Sequential(*(td.nn.Linear(24, 24) for _ in range(layers)))


def train(kind: str, layers: int, steps: int):
    model, rank = model_of(layers), dist.get_rank()
    if kind == "sharded":
        for layer in model:
            dist.fully_shard(layer)
    else:
        dist.data_parallel(model, bucket_cap_mb=2000 / 2**20)
    optimizer = td.optim.Adam(model.parameters(), lr=0.01)

    @td.compile
    def step(x):
        loss = (td.tanh(model(x)) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    losses = [step(td.sin(td.arange(5.0 * 24).reshape(5, 24) * (i + 1) + rank)).item() for i in range(steps)]
    graph = step.graph()
    made = [p.detach().numpy() for p in model.parameters()]
    return losses, made, shown(graph.schedule.steps), memory_of(graph, graph.schedule)["peak"]


def on_threads(*args, skip=""):
    with td.switches(SKIP=skip):
        return dist.spawn(train, 2, args, engine="threads", timeout=60)


@pytest.mark.parametrize("kind", ["sharded", "replicated"])
def test_results_have_the_same_bits(kind, beside):
    early, late = on_threads(kind, 4, 4), on_threads(kind, 4, 4, skip=BOTH)
    for (losses, mine, steps, _), (others, expected, plain, _) in zip(early, late, strict=True):
        assert losses == others
        for x, y in zip(mine, expected, strict=True):
            np.testing.assert_array_equal(x, y)
        assert any(s.startswith("begin") for s in steps) and not any(s.startswith("begin") for s in plain)


def test_layers_are_gathered_while_others_are_computed(beside):
    """In forward, and in backward for the layers in front of the last one."""
    ((_, _, steps, _), _) = on_threads("sharded", 4, 1)
    began: dict[str, int] = {}
    beside_work = 0
    for s in steps:
        if s.startswith("begin"):
            began[s] = 0
        elif s.startswith("await"):
            beside_work += began.get("begin" + s[5:], 0) > 0
        else:
            began = {name: count + 1 for name, count in began.items()}
    gathers = [s for s in steps if "all_gather" in s and not s.startswith("await")]
    assert gathers.count("begin all_gather") >= 4 and beside_work >= 4


def test_one_layer_more_is_in_memory(beside):
    layer = 4 * (24 * 24 + 24)
    ((*_, early), _) = on_threads("sharded", 6, 1)
    ((*_, late), _) = on_threads("sharded", 6, 1, skip=BOTH)
    assert early <= late + 2 * layer  # gathered, and a gradient under way


def failing(rank_that_fails):
    """A program that fails where collectives are under way: nothing of it is written afterwards."""
    model = model_of(3)
    for layer in model:
        dist.fully_shard(layer)
    table = td.zeros(3, 24)

    @td.compile
    def step(x, i):
        loss = (model(x) ** 2).mean()
        return loss + table[i.to(td.int64) + (model(x).sum() * 0).to(td.int64)].sum()

    index = td.tensor([7 if dist.get_rank() == rank_that_fails else 0])
    try:
        step(td.ones(5, 24), index).item()
    except (td.TandemError, IndexError) as error:
        return type(error).__name__
    return "done"


def test_a_program_that_fails_waits_for_what_it_has_begun(beside):
    found = dist.spawn(failing, 2, (1,), engine="threads", timeout=60)
    assert found[1] != "done"
