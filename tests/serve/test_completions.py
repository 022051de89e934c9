"""Language models behind HTTP: many prompts at one time give what each gives alone."""

from __future__ import annotations

import asyncio
import json
import threading
import time

import pytest

from tandem.serve import App, ModelStore
from tests.serve.client import ask, text_model, together
from tests.serve.prompts import served


class Letters:
    """A tokenizer: a letter is a token."""

    def encode(self, text: str) -> list[int]:
        return [ord(c) % 30 for c in text]

    def decode(self, tokens: list[int]) -> str:
        return "".join(chr(97 + t) if t < 26 else "." for t in tokens)


@pytest.fixture(scope="module")
def model():
    return text_model()


def complete(app, prompt, **settings):
    return ask(app, "POST", "/v1/completions", {"model": "words", "prompt": prompt, "temperature": 0, **settings})


def test_a_stream_has_the_tokens_one_by_one(model):
    app = served(model, Letters())
    whole, stream = together(complete(app, "hello", max_tokens=6), complete(app, "hello", max_tokens=6, stream=True))
    events = [json.loads(c.removeprefix(b"data: ")) for c in stream.chunks[:-1]]
    assert stream.chunks[-1] == b"data: [DONE]\n\n" and stream.headers["content-type"] == "text/event-stream"
    assert "".join(e["choices"][0]["text"] for e in events) == whole.json()["choices"][0]["text"]
    assert [e["choices"][0]["finish_reason"] for e in events] == [None] * 6 + ["length"]


def test_a_chat_is_a_prompt_of_its_messages(model):
    app = served(model, Letters())
    messages = [{"role": "user", "content": "hi"}]
    body = {"model": "words", "messages": messages, "max_tokens": 4, "temperature": 0}
    whole, plain = together(
        ask(app, "POST", "/v1/chat/completions", body), complete(app, "user: hi\nassistant:", max_tokens=4)
    )
    made = whole.json()
    assert made["object"] == "chat.completion"
    assert made["choices"][0]["message"] == {"role": "assistant", "content": plain.json()["choices"][0]["text"]}


def test_texts_and_tokens_end_an_answer(model):
    free = model.generate([[7, 7, 7]], 8, temperature=0)[0][3:]
    text = Letters().decode(free)
    app = served(model, Letters(), stops=[free[5]])
    prompt = [7, 7, 7]
    by_text, by_token, streamed = together(
        complete(app, prompt, max_tokens=8, stop=text[2:4]), complete(app, prompt, max_tokens=8),
        complete(app, prompt, max_tokens=8, stop=[text[2:4]], stream=True),
    )  # fmt: skip
    assert by_text.json()["choices"][0]["text"] == text[: text.index(text[2:4])]
    events = [json.loads(c.removeprefix(b"data: ")) for c in streamed.chunks[:-1]]
    assert "".join(e["choices"][0]["text"] for e in events) == by_text.json()["choices"][0]["text"]
    end = free.index(free[5])
    assert by_token.json()["choices"][0] == {"index": 0, "logprobs": None, "text": text[:end], "finish_reason": "stop"}


def test_samples_of_one_seed_are_the_same(model):
    app = served(model)
    answers = together(*(complete(app, [3], max_tokens=8, temperature=2.0, top_p=0.9, seed=s) for s in (5, 5, 6)))
    first, second, other = (a.json()["choices"][0]["text"] for a in answers)
    assert first == second != other


def test_mistakes_in_a_request_are_named(model):
    app = served(model, count=20)
    cases = [
        ({"prompt": "text"}, "has no tokenizer: give the prompt as a list of tokens"), ({"prompt": []}, "prompt must be one text"),
        ({"prompt": [99]}, "tokens of the prompt must be from 0 to 29"), ({"prompt": [1], "max_tokens": 21}, "it may be 1 to 20"),
        ({"prompt": [1], "temperature": -1}, "temperature is -1.0"), ({"prompt": [1], "temperature": "hot"}, "must be a number"),
        ({"prompt": [1], "n": 2}, "n may be 1 only"), ({"prompt": [1], "stop": [3.5]}, "stop must be a text"),
        ({"prompt": [1] * 40, "max_tokens": 20}, "40 tokens of the prompt and 20 more are over the limit of 48"),
    ]  # fmt: skip
    answers = together(*(complete(app, **body) for body, _ in cases))
    for (body, text), answer in zip(cases, answers, strict=True):
        assert answer.status == 400 and text in answer.json()["error"], (body, answer.body)
    chat = {"model": "words", "messages": [{"role": "user"}]}
    (answer,) = together(ask(app, "POST", "/v1/chat/completions", chat))
    assert answer.status == 400 and "messages must be a list" in answer.json()["error"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_frees_its_rows(stream):
    """Servers drop what is sent to nobody without a word: who has gone is heard by receiving."""
    store = ModelStore()
    store.add("lm", text_model())
    engine, app = store.get("lm").engine, App(store)
    step, has_gone = engine._step, threading.Event()

    def held(*args):
        """The client goes in the middle, however slow it is; the engine goes on when it has heard of it."""
        end = time.monotonic() + 300
        while engine.steps >= 10 and not all(s.cancelled for s in engine.running) and time.monotonic() < end:
            has_gone.set()
            time.sleep(0.001)
        return step(*args)

    async def run():
        engine._step = held
        body = json.dumps({"model": "lm", "prompt": [1], "max_tokens": 40, "stream": stream}).encode()
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive():
            while not messages and not has_gone.is_set():
                await asyncio.sleep(0.001)
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message):
            pass

        await app({"type": "http", "method": "POST", "path": "/v1/completions", "headers": []}, receive, send)
        while engine.running:
            await asyncio.sleep(0.01)

    free = engine.cache.pool.free
    asyncio.run(run())
    assert engine.steps < 35 and engine.cache.pool.free == free
    assert stream or 'code="499"' in app.metrics.text()
    asyncio.run(store.close())


def test_stop_may_be_tokens():
    store = ModelStore()
    store.add("lm", text_model())
    request = {"model": "lm", "prompt": [1, 2], "max_tokens": 9, "temperature": 0}
    (whole,) = together(ask(App(store), "POST", "/v1/completions", request))
    tokens = whole.json()["choices"][0]["text"].split()
    (cut,) = together(ask(App(store), "POST", "/v1/completions", {**request, "stop": int(tokens[3])}))
    assert cut.json()["choices"][0]["text"].split() == tokens[: tokens.index(tokens[3])]
