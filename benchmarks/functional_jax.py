"""Operators of functional_models.py in jax, and its training step under jax.jit."""

import functools

import jax
import jax.numpy as jnp
import numpy as np


class Net:
    matmul, relu, relu6 = staticmethod(jnp.matmul), staticmethod(jax.nn.relu), staticmethod(jax.nn.relu6)
    sigmoid, tanh, softmax = staticmethod(jax.nn.sigmoid), staticmethod(jnp.tanh), staticmethod(jax.nn.softmax)
    reshape, transpose, mean = staticmethod(jnp.reshape), staticmethod(jnp.transpose), staticmethod(jnp.mean)
    gelu = staticmethod(functools.partial(jax.nn.gelu, approximate=False))
    unstack = staticmethod(tuple)

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.weights, self.averages, self.making = [], [], True

    def start(self, weights, averages, key):
        """Reads the weights in the order of their making from now on."""
        self.weights, self.averages, self.key, self.making = list(weights), list(averages), key, False
        self.place, self.new_averages = 0, []

    def weight(self, shape, scale):
        if self.making:
            value = (
                np.ones(shape, np.float32) if scale is None else self.rng.normal(size=shape).astype(np.float32) * scale
            )
            self.weights.append(jnp.asarray(value))
            return self.weights[-1]
        self.place += 1
        return self.weights[self.place - 1]

    def average(self, mean, variance):
        if self.making:
            self.averages = [*self.averages, jnp.zeros_like(mean), jnp.ones_like(variance)]
            return
        for value in (mean, variance):
            old = self.averages[len(self.new_averages)]
            self.new_averages.append(0.9 * old + 0.1 * value)

    def dropout(self, x, rate):
        if self.making:
            return x
        self.key, now = jax.random.split(self.key)
        return jnp.where(jax.random.bernoulli(now, 1 - rate, x.shape), x / (1 - rate), 0)

    def filter_shape(self, kernel, inputs, out, depthwise):
        return kernel, kernel, inputs, out

    def conv(self, x, weight, stride, padding, depthwise):
        groups = x.shape[-1] if depthwise else 1
        return jax.lax.conv_general_dilated(
            x, weight, (stride,) * 2, [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )  # fmt: skip

    def max_pool(self, x, size, stride, padding=0):
        return jax.lax.reduce_window(
            x, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, stride, stride, 1),
            [(0, 0), (padding, padding), (padding, padding), (0, 0)],
        )  # fmt: skip

    def layer_norm(self, x, scale, shift, epsilon):
        mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
        return (x - mean) * jax.lax.rsqrt(variance + epsilon) * scale + shift

    def batch_norm(self, x, scale, shift, epsilon):
        mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
        self.average(mean, variance)
        return (x - mean) * (jax.lax.rsqrt(variance + epsilon) * scale) + shift

    def flatten(self, x):
        return x.reshape(x.shape[0], -1)

    def rows(self, table, index):
        return table[index]

    def concat(self, parts):
        return jnp.concatenate(parts, -1)

    def split(self, x, count):
        return jnp.split(x, count, -1)

    def scan(self, cell, start, xs):
        return jax.lax.scan(cell, tuple(jnp.asarray(s) for s in start), xs)[1]

    def cross_entropy(self, logits, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean()

    def binary_cross_entropy(self, logits, target):
        return (jnp.maximum(logits, 0) - logits * target + jnp.log1p(jnp.exp(-jnp.abs(logits)))).mean()


def update(kind, rate, step, p, g, state):
    """(new parameter, new state) of one parameter; `state` is two arrays of its shape, used or not."""
    m, v = state
    if kind == "sgd":
        return p - rate * g, (m, v)
    if kind == "momentum":
        m = 0.9 * m + g
        return p - rate * m, (m, v)
    if kind == "adagrad":
        v = v + g * g
        return p - rate * g / (jnp.sqrt(v) + 1e-10), (m, v)
    if kind == "adamw":
        p = p * (1 - rate * 0.01)
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    return p - rate * (m / (1 - 0.9**step)) / (jnp.sqrt(v / (1 - 0.999**step)) + 1e-8), (m, v)


def training_step(networks, case):
    """A function of no arguments that trains one step and gives the loss."""
    net = networks.net
    network, kind, rate, inputs = getattr(networks, case)()
    inputs = [jnp.asarray(i) for i in inputs]
    network(*inputs)
    # States that a kind does not use are empty, so that they cost nothing.
    used = {"sgd": (0, 0), "momentum": (1, 0), "adagrad": (0, 1), None: (0, 0)}.get(kind, (1, 1))
    made = net.weights
    states = [tuple(jnp.zeros_like(w) if u else jnp.zeros(()) for u in used) for w in made]

    def loss_of(weights, averages, key):
        net.start(weights, averages, key)
        return network(*inputs), net.new_averages

    @functools.partial(jax.jit, donate_argnums=(0, 1, 2))
    def train(weights, averages, states, key, step):
        (loss, averages), grads = jax.value_and_grad(loss_of, has_aux=True)(weights, averages, key)
        done = [update(kind, rate, step, *each) for each in zip(weights, grads, states, strict=True)]
        return [p for p, _ in done], averages, [s for _, s in done], jax.random.split(key)[0], step + 1, loss

    if kind is None:
        forward = jax.jit(lambda weights: loss_of(weights, [], jax.random.PRNGKey(0))[0])
        return lambda: float(forward(made))
    state = [made, net.averages, states, jax.random.PRNGKey(0), jnp.ones(())]

    def step():
        *state[:], loss = train(*state)
        jax.block_until_ready(state)
        return float(loss)

    return step
