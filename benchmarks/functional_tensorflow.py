"""Operators of functional_models.py in TensorFlow, and its training step under tf.function."""

import numpy as np
import tensorflow as tf


class Net:
    matmul, relu, relu6 = staticmethod(tf.matmul), staticmethod(tf.nn.relu), staticmethod(tf.nn.relu6)
    sigmoid, tanh, softmax = staticmethod(tf.sigmoid), staticmethod(tf.tanh), staticmethod(tf.nn.softmax)
    reshape, transpose, mean = staticmethod(tf.reshape), staticmethod(tf.transpose), staticmethod(tf.reduce_mean)
    gelu, unstack = staticmethod(tf.nn.gelu), staticmethod(tf.unstack)
    rows = staticmethod(tf.gather)

    def __init__(self):
        self.rng = np.random.default_rng(0)
        self.weights, self.averages, self.making = [], [], True

    def start(self):
        self.place, self.average_place, self.making = 0, 0, False

    def weight(self, shape, scale):
        if self.making:
            value = (
                np.ones(shape, np.float32) if scale is None else self.rng.normal(size=shape).astype(np.float32) * scale
            )
            self.weights.append(tf.Variable(value))
            return self.weights[-1]
        self.place += 1
        return self.weights[self.place - 1]

    def average(self, mean, variance):
        for value in (mean, variance):
            if self.making:
                self.averages.append(tf.Variable(tf.zeros_like(value)))
            else:
                old = self.averages[self.average_place]
                old.assign_sub(0.1 * (old - value))
                self.average_place += 1

    def layer_norm(self, x, scale, shift, epsilon):
        mean, variance = tf.nn.moments(x, (-1,), keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + epsilon) * scale + shift

    def batch_norm(self, x, scale, shift, epsilon):
        y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
            x=x, scale=scale, offset=shift, mean=[], variance=[], epsilon=epsilon
        )
        self.average(mean, variance)
        return y

    def dropout(self, x, rate):
        return x if self.making else tf.nn.dropout(x, rate)

    def filter_shape(self, kernel, inputs, out, depthwise):
        return (kernel, kernel, out, 1) if depthwise else (kernel, kernel, inputs, out)

    def conv(self, x, weight, stride, padding, depthwise):
        if stride == 1:
            padding = "SAME" if padding else "VALID"
        else:
            # TensorFlow's "SAME" pads strided convolutions differently, and only explicit padding of its own is slower.
            x, padding = tf.pad(x, [[0, 0], [padding] * 2, [padding] * 2, [0, 0]]), "VALID"
        if not depthwise:
            return tf.nn.conv2d(x, weight, stride, padding)
        return tf.nn.depthwise_conv2d(x, weight, (1, stride, stride, 1), padding)

    def max_pool(self, x, size, stride, padding=0):
        if padding:
            x = tf.pad(x, [[0, 0], [padding] * 2, [padding] * 2, [0, 0]], constant_values=float("-inf"))
        return tf.nn.max_pool2d(x, size, stride, "VALID")

    def flatten(self, x):
        return tf.reshape(x, (x.shape[0], -1))

    def concat(self, parts):
        return tf.concat(parts, -1)

    def split(self, x, count):
        return tf.split(x, count, -1)

    def scan(self, cell, state, xs):
        """Unrolled: TensorFlow runs that faster than its loops."""
        outputs = []
        for x in tf.unstack(xs):
            state, output = cell(state, x)
            outputs.append(output)
        return tf.stack(outputs)

    def cross_entropy(self, logits, y):
        return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, logits))

    def binary_cross_entropy(self, logits, target):
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(target, tf.float32), logits))


def update(kind, rate, step, p, g, m, v):
    """TensorFlow's own fused updates."""
    if kind == "sgd":
        p.assign_sub(rate * g)
    elif kind == "momentum":
        tf.raw_ops.ResourceApplyMomentum(var=p.handle, accum=m.handle, lr=rate, grad=g, momentum=0.9)
    elif kind == "adagrad":
        tf.raw_ops.ResourceApplyAdagradV2(var=p.handle, accum=v.handle, lr=rate, epsilon=1e-10, grad=g)
    else:
        if kind == "adamw":
            p.assign(p * (1 - rate * 0.01))
        tf.raw_ops.ResourceApplyAdam(
            var=p.handle, m=m.handle, v=v.handle, beta1_power=tf.pow(0.9, step), beta2_power=tf.pow(0.999, step), lr=rate,
            beta1=0.9, beta2=0.999, epsilon=1e-8, grad=g,
        )  # fmt: skip


def training_step(networks, case, xla=False):
    """A function of no arguments that trains one step and gives the loss."""
    net = networks.net
    network, kind, rate, inputs = getattr(networks, case)()
    inputs = [tf.constant(i, tf.float32 if i.dtype.kind == "f" else tf.int32) for i in inputs]
    network(*inputs)
    made = list(net.weights)
    slots = [[tf.Variable(tf.zeros_like(w)) for _ in range(2)] for w in made]
    count = tf.Variable(1.0)

    @tf.function(jit_compile=xla)
    def forward():
        net.start()
        return network(*inputs)

    @tf.function(jit_compile=xla)
    def train():
        net.start()
        with tf.GradientTape() as tape:
            loss = network(*inputs)
        for p, g, (m, v) in zip(made, tape.gradient(loss, made), slots, strict=True):
            update(kind, rate, count, p, tf.convert_to_tensor(g), m, v)
        count.assign_add(1.0)
        return loss

    run = forward if kind is None else train
    return lambda: float(run())
