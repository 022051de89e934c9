"""Parameters on servers of the host whose workers compute on a device, on the stand-in: what is copied, and when. What they compute
is tested in test_servers.py, on a device that computes."""

import shutil

import pytest

from tests.gpu.test_stand_in import run

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")

HEAD = """
from tandem.distributed import Cluster, ParameterServer
cluster = Cluster({"ps": 2, "worker": 1}, engine="threads")
def network():
    td.manual_seed(0)
    return td.nn.Sequential(td.nn.Linear(4, 8), td.nn.Tanh(), td.nn.Linear(8, 2)).to("cuda")
def made(model, **options):
    return ParameterServer(model, td.optim.SGD(model.parameters(), lr=0.1), cluster=cluster, **options)
def backward(model):
    model(td.ones(3, 4, device="cuda")).sum().backward()
"""


def test_gradients_leave_while_backward_runs_and_each_is_copied_once(tmp_path):
    run(
        HEAD
        + """
model = network()
server = made(model)
first = dict(server.staging.counts)
assert first["to_device"] >= 4 and first["to_host"] == 0, first
size = sum(p.numel() for p in model.parameters()) * 4
for step in range(3):
    backward(model)
    assert server.step().applied
found = server.staging.counts
assert (found["to_host"], found["bytes_to_host"]) == (12, 3 * size), found
assert (found["early"], found["again"]) == (12, 0), found
assert found["bytes_to_device"] == 4 * size == server.bytes["pulled"], found
assert all(p.device == "cuda:0" for p in model.parameters())
assert all(d["version"] == 3 for d in server.describe().values())
waiting = made(network(), overlap=False, name="waiting")
backward(waiting.model)
waiting.step()
assert waiting.staging.counts["early"] == 0 and waiting.staging.counts["bytes_to_host"] == size
""",
        tmp_path,
    )


def test_gradients_that_change_after_they_left_are_copied_again(tmp_path):
    run(
        HEAD
        + """
model = network()
server = made(model, mode="async")
sent = []
begin = cluster.peer("/job:ps/task:0").__class__.begin
def seen(self, name, *arguments, tensors=()):
    if name == "ps.push":
        tensors = list(tensors)
        assert all(t.device == "cpu" for t in tensors)
        sent.extend(tensors)
    return begin(self, name, *arguments, tensors=tensors)
cluster.peer("/job:ps/task:0").__class__.begin = seen
def pushed():
    sent.clear()
    server.step()
    return sum(t.numel() for t in sent), {t.flatten()[0].item() for t in sent}
backward(model)
for p in model.parameters():
    p.grad.copy_(td.full(p.shape, 7.0).to("cuda"))  # in place: kernels compute nothing here, but the version tells
count, _ = pushed()
assert count == sum(p.numel() for p in model.parameters())
assert server.staging.counts["again"] == 4, server.staging.counts
backward(model)
for p in model.parameters():
    p.grad = td.full(p.shape, 5.0).to("cuda")
assert pushed()[1] == {5.0}
assert server.staging.counts["again"] == 8, server.staging.counts
before = server.staging.counts["to_host"]
for step in range(3):  # two backward passes a step: from the second step on only the last one's are copied
    backward(model)
    backward(model)
    server.step()
assert server.staging.counts["to_host"] - before == 8 + 4 + 4, server.staging.counts
for p in model.parameters():
    p.grad = td.ones(p.shape).to("cuda")
server.step()  # without any backward pass
backward(model)
server.step()
server.staging.close()
""",
        tmp_path,
    )


def test_tables_and_sessions_of_a_cluster_compute_on_the_device(tmp_path):
    run(
        HEAD
        + """
table = td.distributed.ShardedEmbedding(None, 4, td.optim.Adagrad, lr=0.1)
server = ParameterServer(table, mode="async", cluster=cluster, name="table")
ids = td.tensor([[3, 10**12, 3]]).cuda()
rows = table(ids)
assert rows.device == "cuda:0" and rows.shape == (1, 3, 4)
rows.sum().backward()
server.step()
losses = td.distributed.ShardedEmbedding(50, 4, td.optim.SGD, lr=0.1)
losses.sampled_softmax(td.ones(2, 4).cuda(), td.tensor([1, 2]).cuda(), 5).sum().backward()
with td.Graph() as graph:
    with td.device("/job:ps/task:0"):
        w = td.Variable(td.ones((2, 3)), name="w")
    with td.device("/job:worker/task:0/device:cuda:0"):
        y = (w * 2.0).sum()
        slope = td.gradients(y, [w])[0]
    step = w.assign_sub(slope)
    init = td.global_variables_initializer()
session = td.Session(graph, target=cluster)
session.run(init)
library.stand_in_clear()
session.run(step)
made = counts()
assert made["launches"] + made["graphs"] >= 1, made
assert session.run(w).device == "cpu"
assert session.run(y).ndim == 0
""",
        tmp_path,
    )
