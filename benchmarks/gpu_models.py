"""Training steps that gpu.py times. One text for both libraries: only the import differs."""

from models import Models


class GpuModels(Models):
    """`autocast` is a scope for mixed precision; models and data are put on the device."""

    def __init__(self, lib, nn, functional, optim, fused, autocast, channels_last):
        super().__init__(lib, nn, functional, optim, fused)
        self.autocast = autocast
        self.channels_last = channels_last

    def floats(self, *shape):
        x = super().floats(*shape).to("cuda")
        return x.to(memory_format=self.channels_last) if len(shape) == 4 else x

    def classes(self, high, *shape):
        return super().classes(high, *shape).to("cuda")

    def training(self, model, optimizer, loss_of):
        def step():
            with self.autocast():
                loss = loss_of(model)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            return loss

        return step

    def images(self, model, batch=64):
        model = model.to("cuda").to(memory_format=self.channels_last)
        optimizer = self.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, **self.fused)
        return self.classifier(model, optimizer, self.floats(batch, 3, 224, 224), self.classes(1000, batch))

    # -- the cases

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
        return self.images(nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks,
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000),
        ))  # fmt: skip

    def mobilenet_v2(self):
        nn = self.nn

        class Inverted(nn.Module):
            def __init__(self, inputs, outputs, stride, expand):
                super().__init__()
                hidden = inputs * expand
                layers = (
                    []
                    if expand == 1
                    else [nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6()]
                )
                layers += [
                    nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False), nn.BatchNorm2d(hidden), nn.ReLU6(),
                    nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs),
                ]  # fmt: skip
                self.body = nn.Sequential(*layers)
                self.residual = stride == 1 and inputs == outputs

            def forward(self, x):
                return x + self.body(x) if self.residual else self.body(x)

        layers = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
        inputs = 32
        for expand, outputs, count, stride in (
            (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
        ):  # fmt: skip
            for i in range(count):
                layers.append(Inverted(inputs, outputs, stride if i == 0 else 1, expand))
                inputs = outputs
        layers += [nn.Conv2d(320, 1280, 1, bias=False), nn.BatchNorm2d(1280), nn.ReLU6()]
        return self.images(
            nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, 1000))
        )

    def alexnet(self):
        nn = self.nn
        return self.images(nn.Sequential(
            nn.Conv2d(3, 64, 11, 4, 2), nn.ReLU(), nn.MaxPool2d(3, 2), nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(),
            nn.MaxPool2d(3, 2), nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(), nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3, 2), nn.AdaptiveAvgPool2d(6), nn.Flatten(),
            nn.Dropout(), nn.Linear(9216, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Linear(4096, 1000),
        ))  # fmt: skip

    def vgg19(self):
        nn = self.nn
        layers, inputs = [], 3
        for width, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
            for _ in range(count):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.ReLU()]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        return self.images(nn.Sequential(
            *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout(),
            nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 1000),
        ))  # fmt: skip

    def gpt2(self, batch=8, length=1024):
        nn, F = self.nn, self.F
        layers, width, heads, vocabulary = 12, 768, 12, 50257

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
                return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))

        class GPT(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
                self.blocks = nn.Sequential(*[Block() for _ in range(layers)])
                self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
                self.head.weight = self.tokens.weight

            def forward(self, index):
                return self.head(self.norm(self.blocks(self.tokens(index) + self.positions.weight)))

        model = GPT().to("cuda")
        optimizer = self.optim.AdamW(model.parameters(), lr=3e-4, **self.fused)
        x, y = self.classes(vocabulary, batch, length), self.classes(vocabulary, batch, length)
        return self.training(model, optimizer, lambda m: F.cross_entropy(m(x).reshape(-1, vocabulary), y.reshape(-1)))

    def gpt2_small_batch(self):
        return self.gpt2(1, 128)

    def ncf(self, batch=65536):
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

        model = NCF().to("cuda")
        optimizer = self.optim.Adam(model.parameters(), lr=1e-3, **self.fused)
        user, item = self.classes(100_000, batch), self.classes(20_000, batch)
        target = self.floats(batch).sigmoid()
        return self.training(
            model, optimizer, lambda m: F.binary_cross_entropy_with_logits(m(user, item).float(), target)
        )

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

        model = LM().to("cuda")
        optimizer = self.optim.SGD(model.parameters(), lr=1.0, **self.fused)
        x, y = self.classes(vocabulary, batch, length), self.classes(vocabulary, batch, length)
        return self.training(model, optimizer, lambda m: F.cross_entropy(m(x).reshape(-1, vocabulary), y.reshape(-1)))


# bar: ratio to the best PyTorch mode, compiled
BARS = {
    "resnet50": 0.95, "mobilenet_v2": 0.95, "alexnet": 0.95, "vgg19": 0.95, "gpt2": 0.95, "gpt2_small_batch": 0.95, "ncf": 0.9,
    "lstm_lm": 0.9,
}  # fmt: skip
EAGER_BAR = 0.7
