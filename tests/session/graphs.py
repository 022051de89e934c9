"""A session whose variables have their first values."""

import tandem as td


def _started(graph):
    with graph:
        init = td.global_variables_initializer()
    session = td.Session(graph)
    session.run(init)
    return session
