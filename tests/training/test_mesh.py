"""Trainer on a mesh: the same run as one process's, and one that another mesh resumes."""

import numpy as np

import tandem as td
from tandem import distributed as dist

X = np.random.default_rng(0).standard_normal((12, 4)).astype(np.float32)
Y = X.sum(1, keepdims=True)


def make():
    td.manual_seed(0)
    return td.nn.Sequential(td.nn.Linear(4, 6), td.nn.Tanh(), td.nn.Linear(6, 1))


def fit(mesh, model, rows, folder, epochs):
    optimizer = td.optim.Adam(model.parameters(), lr=0.05)
    trainer = td.training.Trainer(
        model, optimizer, td.nn.MSELoss(), mesh=mesh, folder=folder, progress=False, clip_norm=1.0
    )
    data = td.data.TensorDataset(td.tensor(X[rows]), td.tensor(Y[rows]))
    history = trainer.fit(td.data.DataLoader(data, batch_size=len(data)), epochs=epochs)
    loss = trainer.evaluate([(td.tensor(X[rows]), td.tensor(Y[rows]))])["loss"]
    return [e["train_loss"] for e in history.epochs], loss


def test_a_mesh_trains_as_one_process_does_and_another_mesh_goes_on(tmp_path):
    def work(shape, folder, epochs):
        mesh = dist.Mesh(shape, ("data", "model")[: len(shape)])
        model = make()
        if len(shape) == 2:
            dist.parallelize_module(model, mesh, {"0": dist.ColwiseParallel(), "2": dist.RowwiseParallel()})
        rows = slice(6 * mesh.coordinate[0], 6 * mesh.coordinate[0] + 6)
        return fit(mesh, model, rows, folder, epochs)

    losses, loss = fit(None, make(), slice(None), None, 3)
    folder = str(tmp_path)
    for first, _ in dist.spawn(work, 2, ((2,), folder, 2), engine="threads", timeout=300):
        np.testing.assert_allclose(first, losses[:2], rtol=1e-4)
    for rest, last in dist.spawn(work, 4, ((2, 2), folder, 3), engine="threads", timeout=300):
        np.testing.assert_allclose(rest, losses[2:], rtol=1e-4)
        np.testing.assert_allclose(last, loss, rtol=1e-4)
