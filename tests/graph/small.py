"""A small graph."""

import tandem as td


def softmax_graph():
    f = td.compile(lambda x: (td.softmax(x * 2, -1), x.sum()))
    f(td.ones(2, 3))
    return f.graph()
