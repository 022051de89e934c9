"""Scale-out: the same application as replicas on a Ray cluster, behind Ray Serve."""

from __future__ import annotations

from pathlib import Path

from tandem.errors import CheckpointError, UnsupportedError
from tandem.serve.app import App
from tandem.serve.store import Limits, ModelStore


def application(models: dict, limits: Limits | None = None, **options):
    """An application for `ray.serve.run`: every replica loads the models and answers all that `tandem serve` answers.

    models: {name: path of a file of td.export.save, or of a folder with a language model}, which every node can read.
    options: of ray.serve.deployment: num_replicas, autoscaling_config, ray_actor_options, ...

        from tandem.serve.ray import application
        ray.serve.run(application({"digits": "/models/digits.model"}, num_replicas=4))
    """
    try:
        from ray import serve
    except ImportError as error:
        raise UnsupportedError(
            "serve.ray", f"Ray Serve cannot be imported: {error}", fix='pip install "ray[serve]"'
        ) from None
    for name, path in models.items():
        if not Path(path).exists():
            raise CheckpointError("serve.ray", f"there is no file {path} for the model {name!r}")
    files = {name: str(path) for name, path in models.items()}

    def build():  # in the replica
        store = ModelStore(limits)
        for name, path in files.items():
            store.load(name, path)
        return App(store)

    return serve.deployment(serve.ingress(build)(), **{"name": "tandem", **options}).bind()
