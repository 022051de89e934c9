"""What a client gets in place of an answer."""

from __future__ import annotations


class RequestError(Exception):
    """An answer with this HTTP status; the text says what is wrong with the request, or that it may come again."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


def overloaded(text: str) -> RequestError:
    return RequestError(429, f"{text}; try again later")


def invalid(text: str) -> RequestError:
    return RequestError(400, text)


def described(error: Exception) -> str:
    """The text of an error for clients: without the server's lines and folders."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error).removesuffix(f"\n  at {getattr(error, 'source', None)}")
