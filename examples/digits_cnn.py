"""A convolutional network on real handwritten digits, with a training loop written out: nothing but tensors, modules, an optimiser.

    python examples/digits_cnn.py

The data are scikit-learn's digits (1,797 images of 8 x 8 pixels; UCI optical digits, CC BY 4.0): `pip install scikit-learn`.
"""

import time

import tandem as td
from tandem import nn
from tandem.nn import functional as F

EPOCHS = 15
BATCH = 64


class Net(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, 2 * width, 3, padding=1), nn.BatchNorm2d(2 * width)
        self.dropout = nn.Dropout(0.25)
        self.out = nn.Linear(2 * width * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(self.norm1(self.conv1(x)).relu(), 2)
        x = F.max_pool2d(self.norm2(self.conv2(x)).relu(), 2)
        return self.out(self.dropout(x.flatten(1)))


def accuracy(model: nn.Module, images, labels) -> float:
    model.eval()
    with td.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main(epochs: int = EPOCHS, width: int = 32, compiled: bool = True, seed: int = 0, show=print):
    """Trains; gives the mean loss of each epoch and the accuracy on the test images."""
    td.manual_seed(seed)
    train, test = td.data.sets.digits("train"), td.data.sets.digits("test")
    loader = td.data.DataLoader(train, batch_size=BATCH, shuffle=True, drop_last=True)

    model = Net(width)
    optimizer = td.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = td.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))

    def step(images, labels):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    if compiled:  # forward, backward and update as one program; the code of the step stays what it is
        step = td.compile(step)

    losses, right = [], 0.0
    for epoch in range(epochs):
        started = time.perf_counter()
        model.train()
        total = 0.0
        for images, labels in loader:
            total += step(images, labels).item()
            schedule.step()
        seconds = time.perf_counter() - started
        losses.append(total / len(loader))
        right = accuracy(model, *test.tensors)
        show(f"epoch {epoch + 1:2d}  loss {losses[-1]:.4f}  test accuracy {right:.2%}  {seconds:.2f} s")

    wrong = [
        i for i, (image, label) in enumerate(zip(*test.tensors)) if model(image[None]).argmax().item() != label.item()
    ]
    show(f"{len(wrong)} of {len(test)} test images are wrong; " + (f"the first is number {wrong[0]}:" if wrong else ""))
    if wrong:
        image = test[wrong[0]][0][0]
        show("\n".join("".join(" .:-=+*#%@"[min(9, int(p * 10))] * 2 for p in row) for row in image.tolist()))
    return losses, right


if __name__ == "__main__":
    main()
