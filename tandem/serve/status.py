"""The status page: models, versions and a few numbers, without scripts."""

from __future__ import annotations

import html
import time


def page(app) -> str:
    store, metrics = app.store, app.metrics
    rows = []
    for name, versions in store.names().items():
        for version in versions:
            model = store.get(name, version)
            if model.kind == "tensor":
                shapes = ", ".join(f"{n}: {t.short}{list(s)}" for n, (t, s) in model.inputs.items())
                state = f"{model.batcher.rows} rows waiting or running"
            else:
                shapes = f"{model.model.vocabulary} tokens, context {model.model.context}"
                engine = model.engine
                state = f"{len(engine.running)} running, {len(engine.waiting)} waiting, {engine.cache.pool.free} blocks free"
            rows.append("".join(f"<td>{html.escape(str(c))}</td>" for c in (name, version, model.kind, shapes, state)))
    refused = metrics.value("tandem_requests_total", code=429)
    facts = {
        "state": "stopping" if app.stopping else "ready" if rows else "no models",
        "running for": f"{time.time() - store.started:.0f} s",
        "requests": f"{metrics.value('tandem_requests_total'):.0f}, {refused:.0f} refused for lack of room",
        "tokens made": f"{metrics.value('tandem_tokens_total'):.0f}",
    }
    table = "\n".join(f"<tr>{row}</tr>" for row in rows)
    described = "".join(f"<dt>{k}</dt><dd>{html.escape(v)}</dd>" for k, v in facts.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Tandem server</title><meta http-equiv="refresh" content="5">
<style>body {{ font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem }}
td, th {{ text-align: left; padding: .2rem 1rem .2rem 0 }}
dt {{ float: left; clear: left; width: 8rem; color: #666 }}</style></head>
<body><h1>Tandem server</h1><dl>{described}</dl>
<table><thead><tr><th>model</th><th>version</th><th>kind</th><th>takes</th><th>now</th></tr></thead>
<tbody>
{table}
</tbody></table>
<p><a href="/metrics">metrics</a> · <a href="/v1/models">/v1/models</a> · <a href="/v2">/v2</a></p></body></html>
"""
