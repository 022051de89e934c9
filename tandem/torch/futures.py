"""torch.futures: results that come later, on concurrent.futures."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable

__all__ = ["Future", "collect_all", "wait_all"]


class Future(concurrent.futures.Future):
    """A result that some thread sets.

    >>> made = td.torch.futures.Future()
    >>> later = made.then(lambda f: f.wait() + 1)
    >>> made.set_result(1)
    >>> later.wait()
    2
    """

    def __init__(self, *, devices=None):
        super().__init__()

    def wait(self):
        """The result, once it is there; raises what the other side raised."""
        return self.result()

    def value(self):
        """The result, which must be there."""
        return self.result(timeout=0)

    def then(self, callback: Callable[[Future], object]) -> Future:
        """A future of callback(this one), called when this one is done."""
        made = Future()

        def call(done):
            try:
                made.set_result(callback(done))
            except BaseException as error:
                made.set_exception(error)

        self.add_done_callback(call)
        return made


def collect_all(futures: list[Future]) -> Future[list[Future]]:
    """A future of the list, done when all of them are."""
    futures, made = list(futures), Future()
    left = [len(futures)]
    if not futures:
        made.set_result(futures)

    def count(_):
        left[0] -= 1
        if left[0] == 0:
            made.set_result(futures)

    for future in futures:
        future.add_done_callback(count)
    return made


def wait_all(futures: list[Future]) -> list:
    """The results of all of them."""
    return [future.wait() for future in futures]
