"""Parameters on servers of the host, compute on a CUDA device: the same as one process."""

import pytest

import tandem as td
from tandem.distributed import Cluster, ParameterServer

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not td.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture
def cluster():
    with Cluster({"ps": 2, "worker": 1}, engine="threads") as made:
        yield made


def network():
    td.manual_seed(0)
    return td.nn.Sequential(td.nn.Linear(64, 128), td.nn.Tanh(), td.nn.Linear(128, 8)).to("cuda")


def batch(step: int):
    td.manual_seed(100 + step)
    return td.randn(32, 64).cuda(), td.randn(32, 8).cuda()


def loss_of(model, x, y):
    return ((model(x) - y) ** 2).mean()


def alone(steps: int) -> list:
    """Gradients on the device, updates on the host."""
    model = network()
    there = [td.nn.Parameter(p.detach().cpu()) for p in model.parameters()]
    optimizer = td.optim.SGD(there, lr=0.1, momentum=0.9)
    for step in range(steps):
        loss_of(model, *batch(step)).backward()
        for p, q in zip(model.parameters(), there, strict=True):
            q.grad, p.grad = p.grad.cpu(), None
        optimizer.step()
        with td.no_grad():
            for p, q in zip(model.parameters(), there, strict=True):
                p.copy_(q.detach().cuda())
    return [q.detach() for q in there]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("overlap", [False, True])
def test_training_equals_one_process_that_updates_on_the_host(cluster, overlap, compiled):
    model = network()
    server = ParameterServer(
        model, td.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), cluster=cluster, overlap=overlap
    )

    def gradients(x, y):
        loss_of(model, x, y).backward()

    gradients = td.compile(gradients) if compiled else gradients
    for step in range(5):
        gradients(*batch(step))
        assert server.step().applied
    found, size = server.staging.counts, sum(p.numel() for p in model.parameters()) * 4
    assert found["bytes_to_host"] == 5 * size and found["bytes_to_device"] == 6 * size
    for p, q in zip(model.parameters(), alone(5), strict=True):
        expected = p.detach().cpu()
        assert bool((expected == q).all()) if not compiled else td.allclose(expected, q, rtol=1e-4, atol=1e-5)


def test_clipped_and_summed_gradients_are_those_that_are_pushed(cluster):
    model = network()
    server = ParameterServer(model, td.optim.SGD(model.parameters(), lr=1.0), cluster=cluster)
    for step in range(3):
        before = [p.detach().cpu() for p in model.parameters()]
        for part in range(2):
            loss_of(model, *batch(2 * step + part)).backward()
        td.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
        gradients = [p.grad.cpu() for p in model.parameters()]
        server.step()
        for p, old, g in zip(model.parameters(), before, gradients, strict=True):
            assert bool((p.detach().cpu() == old - g).all())


def test_a_session_with_variables_on_the_host_equals_one_process(cluster):
    x = td.randn(16, 8)

    def trained(target, ps: str, worker: str) -> list:
        with td.Graph() as graph:
            given = td.placeholder(td.float32, (16, 8), name="x")
            with td.device(ps):
                w, b = td.Variable(td.ones(8, 4) * 0.1, name="w"), td.Variable(td.zeros(4), name="b")
            with td.device(worker):
                loss = (td.tanh(given @ w + b) ** 2).mean()
                slopes = td.gradients(loss, [w, b])
            step = td.session.group(*(v.assign_sub(0.1 * g) for v, g in zip((w, b), slopes, strict=True)))
            init = td.global_variables_initializer()
        session = td.Session(graph, target=target)
        session.run(init)
        for _ in range(3):
            session.run(step, {given: x})
        return [v.cpu() for v in session.run([w, b])]

    found = trained(cluster, "/job:ps/task:0", "/job:worker/task:0/device:cuda:0")
    for a, b in zip(found, trained(None, "cuda", "cuda"), strict=True):
        assert td.allclose(a, b, rtol=1e-6, atol=1e-7)
