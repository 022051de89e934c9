"""A classic program of graphs and sessions, on scikit-learn's handwritten digits (8 x 8 pixels)."""

import sys

import numpy as np

try:
    from sklearn.datasets import load_digits
except ImportError:
    sys.exit("this example needs the digits of scikit-learn: pip install scikit-learn")

from tandem.v1 import *

BATCH, NUM_STEPS = 128, 4000

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(0).permutation(len(images))
pixels = (images[order] / 16).astype("float32")
classes = np.eye(10, dtype="float32")[labels[order]]
PIXELS, TEST = pixels.shape[1], 256
train_pixels, train_classes = pixels[:-TEST], classes[:-TEST]
test_pixels, test_classes = pixels[-TEST:], classes[-TEST:]

# -- the program

x = placeholder(float32, [BATCH, PIXELS])
y = placeholder(float32, [BATCH, 10])
W_1 = Variable(random_uniform([PIXELS, 100]))
b_1 = Variable(zeros([100]))
layer_1 = nn.relu(matmul(x, W_1) + b_1)
W_2 = Variable(random_uniform([100, 10]))
b_2 = Variable(zeros([10]))
layer_2 = matmul(layer_1, W_2) + b_2
loss = nn.softmax_cross_entropy_with_logits(layer_2, y)
train_op = train.AdagradOptimizer(0.01).minimize(loss)
with Session() as sess:
    sess.run(initialize_all_variables())
    generator = np.random.default_rng(1)
    for step in range(NUM_STEPS):
        rows = generator.integers(0, len(train_pixels), BATCH)
        sess.run(train_op, {x: train_pixels[rows], y: train_classes[rows]})

    # -- how well it does on digits it has not seen

    guesses = np.concatenate([sess.run(layer_2, {x: test_pixels[i : i + BATCH]}) for i in (0, BATCH)])
    accuracy = float((guesses.argmax(1) == test_classes.argmax(1)).mean())
    print(f"{accuracy:.1%} of {TEST} digits after {NUM_STEPS} steps")
