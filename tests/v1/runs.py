"""A run of the default graph."""

import tandem.v1 as tf


def run(fetches, feed_dict=None):
    return tf.Session(graph=tf.get_default_graph()).run(fetches, feed_dict)
