"""A language model behind an application."""

from __future__ import annotations

from tandem.serve import App, Limits, ModelStore


def served(model, tokenizer=None, stops=(), **limits) -> App:
    store = ModelStore(Limits(**limits))
    store.add("words", model, tokenizer=tokenizer, stops=stops)
    return App(store)
