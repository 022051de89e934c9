"""The training steps of models.py for jax.jit and tf.function: one functional text, channels last, which both prefer.

A network is a function of `net` and its inputs. `net.weight(shape)` makes a parameter when the network runs first and gives
the same one at the same place of every later run, so that the text needs no list of parameters. functional_jax.py and
functional_tensorflow.py say what the operators are.
"""

import math

import numpy as np


class Networks:
    """`net`: a Jax or TensorFlow adapter. Each maker gives (loss function, name of the optimiser, its rate, inputs)."""

    def __init__(self, net):
        self.net = net
        self.rng = np.random.default_rng(0)

    def floats(self, *shape):
        return self.rng.normal(size=shape).astype(np.float32)

    def classes(self, high, *shape):
        return self.rng.integers(0, high, shape).astype(np.int32)

    def images(self, network, batch):
        net, x, y = self.net, self.floats(batch, 224, 224, 3), self.classes(1000, batch)
        return (lambda x, y: net.cross_entropy(network(x), y)), "momentum", 0.01, (x, y)

    # -- layers

    def dense(self, x, out, bias=True):
        y = self.net.matmul(x, self.net.weight((x.shape[-1], out), 1 / math.sqrt(x.shape[-1])))
        return y + self.net.weight((out,), 0.0) if bias else y

    def conv(self, x, out, kernel, stride=1, padding=0, bias=True, depthwise=False):
        inputs = 1 if depthwise else x.shape[-1]
        shape = self.net.filter_shape(kernel, inputs, out, depthwise)
        weight = self.net.weight(shape, 1 / math.sqrt(inputs * kernel * kernel))
        y = self.net.conv(x, weight, stride, padding, depthwise)
        return y + self.net.weight((out,), 0.0) if bias else y

    def norm(self, x, kind="layer"):
        """Layer normalisation over the last axis, or batch normalisation over the others, with running averages."""
        scale, shift = self.net.weight((x.shape[-1],), None), self.net.weight((x.shape[-1],), 0.0)
        return (self.net.layer_norm if kind == "layer" else self.net.batch_norm)(x, scale, shift, 1e-5)

    def conv_norm(self, x, out, kernel, stride=1, depthwise=False):
        return self.norm(self.conv(x, out, kernel, stride, kernel // 2, False, depthwise), "batch")

    # -- the cases

    def mlp_small(self):
        net = self.net
        network = lambda x, y: net.cross_entropy(self.dense(net.relu(self.dense(x, 100)), 10), y)
        return network, "adagrad", 0.01, (self.floats(128, 784), self.classes(10, 128))

    def mlp_large(self):
        net = self.net
        network = lambda x, y: net.cross_entropy(
            self.dense(net.relu(self.dense(net.relu(self.dense(x, 2048)), 2048)), 10), y
        )
        return network, "adam", 1e-3, (self.floats(256, 784), self.classes(10, 256))

    def lenet(self):
        net = self.net

        def network(x, y):
            x = net.max_pool(net.relu(self.conv(x, 6, 5, padding=2)), 2, 2)
            x = net.max_pool(net.relu(self.conv(x, 16, 5)), 2, 2)
            x = net.relu(self.dense(net.flatten(x), 120))
            return net.cross_entropy(self.dense(net.relu(self.dense(x, 84)), 10), y)

        return network, "momentum", 0.01, (self.floats(64, 28, 28, 1), self.classes(10, 64))

    def gpt_mini(self):
        net = self.net
        layers, width, heads, length, batch, vocabulary = 6, 384, 6, 256, 4, 5000
        size = width // heads
        blocked = np.triu(np.full((length, length), -1e9, np.float32), 1)

        def network(x, y):
            x = net.rows(net.weight((vocabulary, width), 1.0), x) + net.weight((length, width), 1.0)
            for _ in range(layers):
                h = net.reshape(self.dense(self.norm(x), 3 * width), (batch, length, 3, heads, size))
                q, k, v = net.unstack(net.transpose(h, (2, 0, 3, 1, 4)))
                scores = net.softmax(net.matmul(q, net.transpose(k, (0, 1, 3, 2))) / math.sqrt(size) + blocked)
                a = net.reshape(net.transpose(net.matmul(scores, v), (0, 2, 1, 3)), (batch, length, width))
                x = x + self.dense(a, width)
                x = x + self.dense(net.gelu(self.dense(self.norm(x), 4 * width)), width)
            logits = self.dense(self.norm(x), vocabulary, bias=False)
            return net.cross_entropy(net.reshape(logits, (batch * length, vocabulary)), y)

        return (
            network,
            "adamw",
            3e-4,
            (self.classes(vocabulary, batch, length), self.classes(vocabulary, batch * length)),
        )

    def gpt_mini_forward(self):
        network, _, _, inputs = self.gpt_mini()
        return network, None, 0.0, inputs

    def lstm_lm(self):
        net = self.net
        vocabulary, width, steps, batch = 10_000, 256, 35, 20
        zeros = np.zeros((batch, width), np.float32)

        def network(x, y):
            x = net.rows(net.weight((vocabulary, width), 1.0), x)
            for _ in range(2):
                gates, recurrent = self.dense(x, 4 * width), net.weight((width, 4 * width), 1 / 16)

                def cell(state, gate, recurrent=recurrent):
                    h, c = state
                    i, f, g, o = net.split(gate + net.matmul(h, recurrent), 4)
                    c = net.sigmoid(f) * c + net.sigmoid(i) * net.tanh(g)
                    h = net.sigmoid(o) * net.tanh(c)
                    return (h, c), h

                x = net.scan(cell, (zeros, zeros), gates)
            return net.cross_entropy(self.dense(net.reshape(x, (steps * batch, width)), vocabulary), y)

        return network, "sgd", 1.0, (self.classes(vocabulary, steps, batch), self.classes(vocabulary, steps * batch))

    def ncf(self):
        net = self.net

        def network(user, item, target):
            rows = lambda count, width, index: net.rows(net.weight((count, width), 1.0), index)
            product = rows(100_000, 64, user) * rows(20_000, 64, item)
            deep = net.concat((rows(100_000, 128, user), rows(20_000, 128, item)))
            for width in (256, 128, 64):
                deep = net.relu(self.dense(deep, width))
            return net.binary_cross_entropy(self.dense(net.concat((product, deep)), 1)[:, 0], target)

        target = 1 / (1 + np.exp(-self.floats(4096)))
        return network, "adam", 1e-3, (self.classes(100_000, 4096), self.classes(20_000, 4096), target)

    def resnet50(self):
        net = self.net

        def network(x):
            x = net.max_pool(net.relu(self.conv_norm(x, 64, 7, 2)), 3, 2, 1)
            for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
                for i in range(count):
                    step = stride if i == 0 else 1
                    y = net.relu(self.conv_norm(x, width, 1))
                    y = self.conv_norm(net.relu(self.conv_norm(y, width, 3, step)), 4 * width, 1)
                    x = net.relu(y + (self.conv_norm(x, 4 * width, 1, step) if i == 0 else x))
            return self.dense(net.mean(x, (1, 2)), 1000)

        return self.images(network, 8)

    def mobilenet_v2(self):
        net = self.net

        def network(x):
            x = net.relu6(self.conv_norm(x, 32, 3, 2))
            for expand, out, count, stride in (
                (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
            ):  # fmt: skip
                for i in range(count):
                    inputs, step = x.shape[-1], stride if i == 0 else 1
                    y = net.relu6(self.conv_norm(x, inputs * expand, 1)) if expand > 1 else x
                    y = net.relu6(self.conv_norm(y, inputs * expand, 3, step, depthwise=True))
                    y = self.conv_norm(y, out, 1)
                    x = x + y if step == 1 and inputs == out else y
            x = net.mean(net.relu6(self.conv_norm(x, 1280, 1)), (1, 2))
            return self.dense(net.dropout(x, 0.2), 1000)

        return self.images(network, 8)

    def alexnet(self):
        net = self.net

        def network(x):
            x = net.max_pool(net.relu(self.conv(x, 64, 11, 4, 2)), 3, 2)
            x = net.max_pool(net.relu(self.conv(x, 192, 5, 1, 2)), 3, 2)
            for out in (384, 256, 256):
                x = net.relu(self.conv(x, out, 3, 1, 1))
            x = net.flatten(net.max_pool(x, 3, 2))
            for _ in range(2):
                x = net.relu(self.dense(net.dropout(x, 0.5), 4096))
            return self.dense(x, 1000)

        return self.images(network, 8)

    def vgg19(self):
        net = self.net

        def network(x):
            for out, count in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
                for _ in range(count):
                    x = net.relu(self.conv(x, out, 3, 1, 1))
                x = net.max_pool(x, 2, 2)
            x = net.flatten(x)
            for _ in range(2):
                x = net.dropout(net.relu(self.dense(x, 4096)), 0.5)
            return self.dense(x, 1000)

        return self.images(network, 4)
