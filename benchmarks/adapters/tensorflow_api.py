"""The names that cases use, as far as TensorFlow's eager mode is measured."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf

version = tf.__version__


def set_threads(count):
    tf.config.threading.set_intra_op_parallelism_threads(count)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def randn(*shape):
    return tf.random.normal(shape)
