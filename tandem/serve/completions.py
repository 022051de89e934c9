"""Completions and chats as OpenAI's API has them, for language models."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator

from tandem.errors import ValueRangeError
from tandem.generation import Sampling
from tandem.serve.errors import invalid
from tandem.serve.store import Limits, TextModel


class Completion:
    """A request for tokens: of one prompt, as text or chat."""

    def __init__(self, model: TextModel, request: dict, limits: Limits, chat: bool):
        self.model, self.chat = model, chat
        self.stream = bool(request.get("stream", False))
        self.prompt = self._chat_prompt(request) if chat else self._prompt(request.get("prompt"))
        self.count = _number(
            request, "max_completion_tokens" if "max_completion_tokens" in request else "max_tokens", 16, int
        )
        if not 1 <= self.count <= limits.count:
            raise invalid(f"max_tokens is {self.count}; it may be 1 to {limits.count}")
        self.sampling = _sampling(request)
        self.seed = request.get("seed")
        if self.seed is not None and type(self.seed) is not int:
            raise invalid("seed must be a whole number")
        self.stop_tokens, self.stop_texts = _stops(request, model)
        if request.get("n", 1) != 1:
            raise invalid("n may be 1 only")
        self.id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self.created = int(time.time())

    def _prompt(self, prompt) -> list[int]:
        if isinstance(prompt, list) and prompt and all(type(t) is int for t in prompt):
            return prompt
        if isinstance(prompt, list) and len(prompt) == 1:
            return self._prompt(prompt[0])
        if isinstance(prompt, str) and prompt:
            return self._encode(prompt)
        raise invalid("prompt must be one text, or one list of tokens")

    def _chat_prompt(self, request: dict) -> list[int]:
        messages = request.get("messages")
        fits = isinstance(messages, list) and messages and all(
            isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
        )  # fmt: skip
        if not fits:
            raise invalid('messages must be a list of objects with "role" and "content"')
        return self._encode("".join(f"{m['role']}: {m['content']}\n" for m in messages) + "assistant:")

    def _encode(self, text: str) -> list[int]:
        if self.model.tokenizer is None:
            raise invalid(f"{self.model.name} has no tokenizer: give the prompt as a list of tokens")
        found = self.model.tokenizer.encode(text)
        return list(getattr(found, "ids", found))

    def _decode(self, tokens: list[int]) -> str:
        return " ".join(map(str, tokens)) if self.model.tokenizer is None else self.model.tokenizer.decode(tokens)

    # -- answers

    async def pieces(self) -> AsyncIterator[tuple[str, str | None]]:
        """(text, None) as it is made, then ("", why it ended)."""
        sequence = self.model.engine.submit(self.prompt, self.count, self.sampling, self.stop_tokens, self.seed)
        self.tokens: list[int] = []
        text, given, reason = "", 0, "length"
        async for token in sequence:
            if token in self.stop_tokens:
                reason = "stop"
                break
            self.tokens.append(token)
            text = self._decode(self.tokens)
            at = min((i for i in (text.find(s) for s in self.stop_texts) if i >= 0), default=-1)
            if at >= 0:
                text, reason = text[:at], "stop"
                break
            sure = len(text) - self._unsure(text)
            yield text[given:sure], None
            given = max(given, sure)
        if given < len(text):
            yield text[given:], None
        yield "", reason

    def _unsure(self, text: str) -> int:
        """How many of the last letters may be half a character, or the beginning of a text that ends the answer."""
        if text.endswith("\ufffd"):
            return 1
        begun = [n for s in self.stop_texts for n in range(1, min(len(s), len(text)) + 1) if text.endswith(s[:n])]
        return max(begun, default=0)

    async def whole(self) -> dict:
        parts = [piece async for piece in self.pieces()]
        text, reason = "".join(t for t, _ in parts), parts[-1][1]
        body = {"message": {"role": "assistant", "content": text}} if self.chat else {"text": text}
        usage = {"prompt_tokens": len(self.prompt), "completion_tokens": len(self.tokens),
                 "total_tokens": len(self.prompt) + len(self.tokens)}  # fmt: skip
        return self._answer({**body, "finish_reason": reason}, "") | {"usage": usage}

    async def events(self) -> AsyncIterator[bytes]:
        """Server-sent events."""
        async for text, reason in self.pieces():
            body = {"delta": {"content": text} if reason is None else {}} if self.chat else {"text": text}
            yield f"data: {json.dumps(self._answer({**body, 'finish_reason': reason}, '.chunk'))}\n\n".encode()
        yield b"data: [DONE]\n\n"

    def _answer(self, choice: dict, chunk: str) -> dict:
        kind = f"chat.completion{chunk}" if self.chat else "text_completion"
        choices = [{"index": 0, "logprobs": None, **choice}]
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model.name, "choices": choices}


def _number(request: dict, name: str, default, kind):
    value = request.get(name)
    if value is None:
        return default
    if type(value) is bool or not isinstance(value, (int, float) if kind is float else int):
        raise invalid(f"{name} is {value!r}; it must be a number")
    return kind(value)


def _sampling(request: dict) -> Sampling:
    try:
        top_k = _number(request, "top_k", None, int)
        return Sampling(_number(request, "temperature", 1.0, float), top_k, _number(request, "top_p", 1.0, float))
    except ValueRangeError as error:
        raise invalid(str(error).splitlines()[0]) from None


def _stops(request: dict, model: TextModel) -> tuple[frozenset[int], list[str]]:
    stop = request.get("stop")
    given = [] if stop is None else stop if isinstance(stop, list) else [stop]
    if not all(isinstance(s, str) and s for s in given) and not all(type(s) is int for s in given):
        raise invalid("stop must be a text or a list of texts, or of tokens")
    ids = request.get("stop_token_ids") or []
    if not isinstance(ids, list) or not all(type(t) is int for t in ids):
        raise invalid("stop_token_ids must be a list of tokens")
    texts = [s for s in given if isinstance(s, str)]
    return frozenset([*model.stops, *ids, *(s for s in given if type(s) is int)]), texts
