"""Weights that PyTorch wrote, in a Tandem model: by name, without PyTorch, without pickle. Then a new head for another task.

    python examples/transfer_weights.py                              # with a stand-in file
    python examples/transfer_weights.py resnet18.safetensors         # with your own

To make a file of the published weights, where torchvision is installed:

    from safetensors.torch import save_file
    save_file(torchvision.models.resnet18(weights="DEFAULT").state_dict(), "resnet18.safetensors")

The stand-in has the same names, shapes and format, but random numbers in it: it shows the way, not what a trained network sees.
"""

import sys
import tempfile

import numpy as np
from safetensors.numpy import save_file

import tandem as td
from tandem import nn
from tandem.nn import functional as F


def stand_in(path: str, width: int, seed: int) -> str:
    """A file as `save_file(model.state_dict())` of torchvision's ResNet-18 makes it."""
    rng = np.random.default_rng(seed)
    tensors = {}
    for name, value in td.models.resnet18(width=width).state_dict().items():
        if name.endswith("num_batches_tracked"):
            tensors[name] = np.array(1000)
        elif name.endswith("running_var") or (value.ndim == 1 and name.endswith("weight")):
            tensors[name] = rng.uniform(0.5, 1.5, value.shape).astype(np.float32)
        else:
            scale = 0.1 if value.ndim == 1 else (2.0 / np.prod(value.shape[1:])) ** 0.5
            tensors[name] = (rng.standard_normal(value.shape) * scale).astype(np.float32)
    save_file(tensors, path, {"format": "pt"})
    return path


def digits(split: str, count: int | None, size: int):
    """scikit-learn's digits, blown up and in three colours, as the network expects images."""
    images, labels = (t[:count] for t in td.data.sets.digits(split).tensors)
    images = F.interpolate(images, size=(size, size), mode="bilinear").expand(-1, 3, -1, -1)
    return (images - 0.45) / 0.225, labels


def features(model: nn.Module, images, batch: int = 64):
    """What the frozen network says of images, batch by batch, compiled; the statistics of its normalisation stay."""
    model.eval()
    run = td.compile(model)
    with td.no_grad():
        return td.cat([run(images[i : i + batch]).clone() for i in range(0, len(images), batch)])


def main(
    path: str | None = None, width: int = 64, count: int | None = 600, size: int = 64, epochs: int = 60, show=print
):
    """Loads, compares, and trains a new head; gives the losses and the accuracy on test images."""
    td.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        path = path or stand_in(f"{folder}/resnet18.safetensors", width, seed=0)
        weights = td.load(path)  # a dict of tensors by name
    show(f"{len(weights)} tensors, such as layer1.0.conv1.weight {tuple(weights['layer1.0.conv1.weight'].shape)}")

    model = td.models.resnet18(width=width)
    model.load_state_dict(weights)  # every name must be there and fit
    assert all((value == weights[name]).all() for name, value in model.state_dict().items())

    # A new head: what is missing is said, what does not fit is refused with its path.
    other = td.models.resnet18(width=width, num_classes=10)
    try:
        other.load_state_dict(weights)
    except td.TandemError as error:
        show(f"{type(error).__name__}: {error}")
    found = other.load_state_dict({k: v for k, v in weights.items() if not k.startswith("fc.")}, strict=False)
    show(f"taken over but for {', '.join(found.missing_keys)}")

    # Train the head on features of the frozen rest, which are computed once.
    body, head = other, other.fc
    body.add_module("fc", nn.Identity())
    body.requires_grad_(False)
    train_x, train_y = digits("train", count, size)
    test_x, test_y = digits("test", count, size)
    train_x, test_x = features(body, train_x), features(body, test_x)
    mean, deviation = train_x.mean(0), train_x.std(0) + 1e-6
    train_x, test_x = (train_x - mean) / deviation, (test_x - mean) / deviation

    optimizer = td.optim.AdamW(head.parameters(), lr=3e-3, weight_decay=1e-2)
    losses = []
    for _ in range(epochs):
        loss = F.cross_entropy(head(train_x), train_y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    right = (head(test_x).argmax(1) == test_y).float().mean().item()
    show(
        f"head on {train_x.shape[1]} features: loss {losses[0]:.3f} -> {losses[-1]:.3f}, {right:.1%} of test images right"
    )
    return losses, right


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
