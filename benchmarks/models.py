"""Training steps that compiled.py times. One text for both libraries: only the import differs."""

import numpy as np


class Models:
    """Builds steps with library `lib` (torch, or tandem): each maker gives a function of no arguments that trains one step."""

    def __init__(self, lib, nn, functional, optim, fused: bool):
        self.lib, self.nn, self.F, self.optim = lib, nn, functional, optim
        self.fused = {"fused": True} if fused else {}
        self.rng = np.random.default_rng(0)
        lib.manual_seed(0)

    def floats(self, *shape):
        return self.lib.from_numpy(self.rng.normal(size=shape).astype(np.float32))

    def classes(self, high, *shape):
        return self.lib.from_numpy(self.rng.integers(0, high, shape))

    def training(self, model, optimizer, loss_of):
        def step():
            loss = loss_of(model)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        def forward():
            with self.lib.no_grad():
                return loss_of(model)

        step.forward = forward
        return step

    def classifier(self, model, optimizer, x, y):
        return self.training(model, optimizer, lambda m: self.F.cross_entropy(m(x), y))

    def placed(self, model):
        """The model where it is to run."""
        return model

    def images(self, model, batch):
        model = self.placed(model)
        optimizer = self.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **self.fused)
        return self.classifier(model, optimizer, self.floats(batch, 3, 224, 224), self.classes(1000, batch))

    # -- the cases

    def mlp_small(self):
        nn = self.nn
        model = nn.Sequential(nn.Linear(784, 100), nn.ReLU(), nn.Linear(100, 10))
        optimizer = self.optim.Adagrad(model.parameters(), lr=0.01)
        return self.classifier(model, optimizer, self.floats(128, 784), self.classes(10, 128))

    def mlp_large(self):
        nn = self.nn
        model = nn.Sequential(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
        optimizer = self.optim.Adam(model.parameters(), lr=1e-3, **self.fused)
        return self.classifier(model, optimizer, self.floats(256, 784), self.classes(10, 256))

    def lenet(self):
        nn = self.nn
        model = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10),
        )  # fmt: skip
        optimizer = self.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **self.fused)
        return self.classifier(model, optimizer, self.floats(64, 1, 28, 28), self.classes(10, 64))

    def gpt_mini(self):
        return self.gpt(layers=6, width=384, heads=6, length=256, batch=4, vocabulary=5000)

    def gpt(self, layers, width, heads, length, batch, vocabulary, tied=False, approximate="none"):
        nn, F = self.nn, self.F

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
                self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x):
                b, t, _ = x.shape
                q, k, v = (
                    self.qkv(self.norm1(x)).reshape(b, t, 3, heads, width // heads).permute(2, 0, 3, 1, 4).unbind(0)
                )
                a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(a.transpose(1, 2).reshape(b, t, width))
                return x + self.down(F.gelu(self.up(self.norm2(x)), approximate=approximate))

        class GPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
                self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
                self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
                if tied:
                    self.head.weight = self.tokens.weight

            def forward(self, index):
                return self.head(self.norm(self.blocks(self.tokens(index) + self.positions.weight)))

        model = self.placed(GPT())
        optimizer = self.optim.AdamW(model.parameters(), lr=3e-4, **self.fused)
        x, y = self.classes(vocabulary, batch, length), self.classes(vocabulary, batch, length)
        return self.training(model, optimizer, lambda m: F.cross_entropy(m(x).reshape(-1, vocabulary), y.reshape(-1)))

    def ncf(self, batch=4096):
        nn, F, lib = self.nn, self.F, self.lib

        class NCF(nn.Module):
            def __init__(self):
                super().__init__()
                self.user_mf, self.item_mf = nn.Embedding(100_000, 64), nn.Embedding(20_000, 64)
                self.user_mlp, self.item_mlp = nn.Embedding(100_000, 128), nn.Embedding(20_000, 128)
                self.mlp = nn.Sequential(
                    nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU()
                )
                self.head = nn.Linear(128, 1)

            def forward(self, user, item):
                deep = self.mlp(lib.cat([self.user_mlp(user), self.item_mlp(item)], -1))
                return self.head(lib.cat([self.user_mf(user) * self.item_mf(item), deep], -1)).squeeze(-1)

        model = self.placed(NCF())
        optimizer = self.optim.Adam(model.parameters(), lr=1e-3, **self.fused)
        user, item = self.classes(100_000, batch), self.classes(20_000, batch)
        target = self.floats(batch).sigmoid()
        return self.training(model, optimizer, lambda m: F.binary_cross_entropy_with_logits(m(user, item), target))

    def lstm_lm(self):
        nn, F, vocabulary, width = self.nn, self.F, 10_000, 256

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.lstm = nn.Embedding(vocabulary, width), nn.LSTM(width, width, 2)
                self.head = nn.Linear(width, vocabulary)

            def forward(self, index):
                return self.head(self.lstm(self.embed(index))[0].reshape(-1, width))

        model = Model()
        optimizer = self.optim.SGD(model.parameters(), lr=1.0, **self.fused)
        x, y = self.classes(vocabulary, 35, 20), self.classes(vocabulary, 35 * 20)
        return self.training(model, optimizer, lambda m: F.cross_entropy(m(x), y))

    def resnet50(self):
        nn, F = self.nn, self.F

        class Bottleneck(nn.Module):
            def __init__(self, inputs, width, stride, project):
                super().__init__()
                self.conv1, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
                self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
                self.conv3, self.norm3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
                self.project = None
                if project:
                    self.project = nn.Sequential(
                        nn.Conv2d(inputs, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
                    )

            def forward(self, x):
                y = F.relu(self.norm1(self.conv1(x)))
                y = self.norm3(self.conv3(F.relu(self.norm2(self.conv2(y)))))
                return F.relu(y + (x if self.project is None else self.project(x)))

        blocks, inputs = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(inputs, width, stride if i == 0 else 1, i == 0))
                inputs = 4 * width
        model = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000),
        )  # fmt: skip
        return self.images(model, 8)

    def mobilenet_v2(self):
        nn = self.nn

        def layer(inputs, out, kernel, stride, groups=1):
            return [
                nn.Conv2d(inputs, out, kernel, stride, kernel // 2, groups=groups, bias=False),
                nn.BatchNorm2d(out),
                nn.ReLU6(),
            ]

        class Residual(nn.Module):
            def __init__(self, inputs, out, stride, expand):
                super().__init__()
                hidden = inputs * expand
                layers = layer(inputs, hidden, 1, 1) if expand > 1 else []
                layers += layer(hidden, hidden, 3, stride, hidden)
                self.layers = nn.Sequential(*layers, nn.Conv2d(hidden, out, 1, bias=False), nn.BatchNorm2d(out))
                self.adds = stride == 1 and inputs == out

            def forward(self, x):
                return x + self.layers(x) if self.adds else self.layers(x)

        blocks, inputs = layer(3, 32, 3, 2), 32
        for expand, out, count, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
        ):  # fmt: skip
            for i in range(count):
                blocks.append(Residual(inputs, out, stride if i == 0 else 1, expand))
                inputs = out
        model = nn.Sequential(
            *blocks,
            *layer(320, 1280, 1, 1),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.2),
            nn.Linear(1280, 1000),
        )
        return self.images(model, 8)

    def alexnet(self):
        nn = self.nn
        model = nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 192, 5, 1, 2), nn.ReLU(), nn.MaxPool2d(3, 2),
            nn.Conv2d(192, 384, 3, 1, 1), nn.ReLU(), nn.Conv2d(384, 256, 3, 1, 1), nn.ReLU(), nn.Conv2d(256, 256, 3, 1, 1),
            nn.ReLU(), nn.MaxPool2d(3, 2), nn.Flatten(), nn.Dropout(0.5), nn.Linear(9216, 4096), nn.ReLU(), nn.Dropout(0.5),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000),
        )  # fmt: skip
        return self.images(model, 8)

    def vgg19(self):
        nn = self.nn
        layers, inputs = [], 3
        for out, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
            for _ in range(count):
                layers += [nn.Conv2d(inputs, out, 3, 1, 1), nn.ReLU()]
                inputs = out
            layers.append(nn.MaxPool2d(2))
        model = nn.Sequential(
            *layers, nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Dropout(0.5), nn.Linear(4096, 1000),
        )  # fmt: skip
        return self.images(model, 4)

    # -- not training steps

    def gpt_mini_forward(self):
        step = self.gpt_mini()
        return step.forward

    def adam_1000(self):
        """The optimiser's step alone, on 1000 small parameters."""
        params = [self.floats(64).requires_grad_() for _ in range(1000)]
        for p in params:
            p.grad = self.floats(64)
        optimizer = self.optim.Adam(params, lr=1e-3, **self.fused)

        def step():
            optimizer.step()
            return params[0]

        return step

    def chain(self):
        """tanh(a*x+b)*c on 4096 x 4096, to be held against a copy of the array."""
        lib, x = self.lib, self.floats(4096, 4096)
        a, b, c = 1.5, 0.5, 2.0
        return lambda: lib.tanh(a * x + b) * c

    def copy(self):
        """Into memory that is there already: the others take most of a clone's time to get theirs from the system."""
        x = self.floats(4096, 4096)
        y = x.clone()
        return lambda: y.copy_(x)


CASES = [
    "mlp_small", "mlp_large", "lenet", "gpt_mini", "gpt_mini_forward", "lstm_lm", "ncf", "resnet50", "mobilenet_v2", "alexnet",
    "vgg19",
]  # fmt: skip
BARS = {
    "mlp_small": 0.8, "mlp_large": 0.8, "lenet": 0.8, "gpt_mini": 0.85, "gpt_mini_forward": 0.85, "lstm_lm": 0.85, "ncf": 0.8,
    "resnet50": 0.85, "mobilenet_v2": 0.85, "alexnet": 0.85, "vgg19": 0.85, "chain": 1.1, "adam_1000": 0.7,
}  # fmt: skip
