"""Training steps that gpu.py times. One text for both libraries: only the import differs."""

from models import Models


class GpuModels(Models):
    """The steps of models.py on a device, and those of its own; `autocast` is a scope for mixed precision."""

    device = "cuda"

    def __init__(self, lib, nn, functional, optim, fused, autocast, channels_last):
        super().__init__(lib, nn, functional, optim, fused)
        self.autocast = autocast
        self.channels_last = channels_last

    def floats(self, *shape):
        x = super().floats(*shape).to(self.device)
        return x.to(memory_format=self.channels_last) if len(shape) == 4 else x

    def classes(self, high, *shape):
        return super().classes(high, *shape).to(self.device)

    def training(self, model, optimizer, loss_of):
        def step():
            with self.autocast():
                loss = loss_of(model)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    def placed(self, model):
        return model.to(self.device).to(memory_format=self.channels_last)

    def images(self, model, batch):
        return super().images(model, 64)  # the device is fast enough for more than the CPU's batches

    # -- the cases that are not the CPU's

    def gpt2(self, batch=8, length=1024):
        sizes = {"layers": 12, "width": 768, "heads": 12, "vocabulary": 50257}
        return self.gpt(**sizes, length=length, batch=batch, tied=True, approximate="tanh")

    def gpt2_small_batch(self):
        return self.gpt2(1, 128)

    def ncf(self):
        return super().ncf(65536)

    def lstm_lm(self, batch=64, length=64):
        nn, F = self.nn, self.F
        vocabulary, width = 10_000, 650

        class LM(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens = nn.Embedding(vocabulary, width)
                self.lstm = nn.LSTM(width, width, 2, batch_first=True)
                self.head = nn.Linear(width, vocabulary)

            def forward(self, x):
                return self.head(self.lstm(self.tokens(x))[0])

        model = self.placed(LM())
        optimizer = self.optim.SGD(model.parameters(), lr=1.0, **self.fused)
        x, y = self.classes(vocabulary, batch, length), self.classes(vocabulary, batch, length)
        return self.training(model, optimizer, lambda m: F.cross_entropy(m(x).reshape(-1, vocabulary), y.reshape(-1)))


# bar: ratio to the best PyTorch mode, compiled
BARS = {
    "resnet50": 0.95, "mobilenet_v2": 0.95, "alexnet": 0.95, "vgg19": 0.95, "gpt2": 0.95, "gpt2_small_batch": 0.95, "ncf": 0.9,
    "lstm_lm": 0.9,
}  # fmt: skip
EAGER_BAR = 0.7
