"use strict";
// The page of a profile: a timeline to zoom into, tables to sort, memory over time.
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const app = document.getElementById("app"), S = data.strings, ROW = 17, HEAD = 20, MEMORY = 110, LEFT = 96;
const el = (tag, attrs = {}, ...inner) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) k.startsWith("on") ? e.addEventListener(k.slice(2), v) : e.setAttribute(k, v);
  e.append(...inner); return e;
};
const time = us => us >= 1e6 ? (us / 1e6).toFixed(3) + " s" : us >= 1e3 ? (us / 1e3).toFixed(3) + " ms" : us.toFixed(2) + " µs";
const bytes = n => { for (const u of ["B", "KB", "MB", "GB"]) { if (n < 1024 || u === "GB") return (u === "B" ? n : n.toFixed(1)) + " " + u; n /= 1024; } };
const hue = text => { let h = 7; for (const c of text) h = (h * 31 + c.charCodeAt(0)) >>> 0; return h % 360; };
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// -- the timeline: tracks of steps [start, duration, name, kind, op, line, bytes, depth], sorted by start
for (const t of data.tracks) {
  const open = []; t.depth = 1;
  for (const s of t.steps) {
    while (open.length && open.at(-1) <= s[0] + 1e-4) open.pop();
    s[7] = open.length; open.push(s[0] + s[1]); t.depth = Math.max(t.depth, open.length);
  }
}
const canvas = el("canvas", {class: "tl", id: "timeline", tabindex: "0"}), memory = el("canvas", {class: "tl", id: "memory"}), tip = el("div", {class: "tip"});
let from = 0, to = data.duration || 1, hits = [], filter = "";
const ratio = () => window.devicePixelRatio || 1;
function sized(c, height) {
  const w = c.clientWidth || c.parentElement.clientWidth, r = ratio();
  c.style.height = height + "px"; c.width = w * r; c.height = height * r;
  const g = c.getContext("2d"); g.setTransform(r, 0, 0, r, 0, 0); g.font = "11px system-ui, sans-serif"; g.textBaseline = "middle";
  return [g, w];
}
const x = (t, w) => LEFT + (t - from) / (to - from) * (w - LEFT);
function ticks(g, w, h) {
  const target = (to - from) / Math.max(2, (w - LEFT) / 110), power = 10 ** Math.floor(Math.log10(target));
  const step = [1, 2, 5, 10].map(k => k * power).find(s => s >= target);
  g.fillStyle = style("--quiet"); g.strokeStyle = style("--line"); g.lineWidth = 0.5;
  for (let t = Math.ceil(from / step) * step; t <= to; t += step) { const p = x(t, w); g.beginPath(); g.moveTo(p, 0); g.lineTo(p, h); g.stroke(); g.fillText(time(t), p + 3, HEAD / 2); }
}
function draw() {
  const height = HEAD + data.tracks.reduce((n, t) => n + t.depth * ROW + 8, 0), [g, w] = sized(canvas, Math.max(height, 60));
  g.clearRect(0, 0, w, height); ticks(g, w, height);
  hits = []; let y = HEAD;
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  for (const t of data.tracks) {
    g.save(); g.beginPath(); g.rect(LEFT, y, w - LEFT, t.depth * ROW); g.clip();
    const last = [];  // the rightmost pixel drawn in each row: steps below a pixel are drawn once
    for (const s of t.steps) {
      if (s[0] > to) break;
      if (s[0] + s[1] < from) continue;
      const a = Math.max(x(s[0], w), LEFT), b = Math.min(x(s[0] + s[1], w), w), d = s[7], wide = Math.max(b - a, 0.6);
      if (b - (last[d] ?? -1) < 0.4) continue;
      last[d] = b;
      const dim = filter && !S[s[2]].includes(filter) && !S[s[4]].includes(filter);
      g.fillStyle = `hsla(${hue(S[s[4]])},${s[3] === "compile" || s[3] === "wait" ? 8 : 62}%,${dark ? 38 : 74}%,${dim ? 0.18 : 1})`;
      g.fillRect(a, y + d * ROW, wide, ROW - 2);
      if (wide > 34) { g.fillStyle = style("--text"); g.save(); g.beginPath(); g.rect(a, y + d * ROW, wide - 3, ROW); g.clip(); g.fillText(S[s[2]], a + 4, y + d * ROW + ROW / 2 - 1); g.restore(); }
      if (wide > 0.5) hits.push([a, y + d * ROW, wide, s]);
    }
    g.restore(); g.fillStyle = style("--quiet"); g.fillText(t.name.slice(0, 15), 6, y + ROW / 2); y += t.depth * ROW + 8;
  }
  drawMemory();
}
function drawMemory() {
  const [g, w] = sized(memory, MEMORY); g.clearRect(0, 0, w, MEMORY); ticks(g, w, MEMORY);
  data.memory.forEach((m, i) => {
    const most = Math.max(...m.points.map(p => p[1]), 1), level = v => MEMORY - 4 - v / most * (MEMORY - HEAD - 10);
    g.beginPath(); let before = null;
    for (const [t, v] of m.points) { if (t > to && before !== null && before > to) break; const p = Math.max(x(t, w), LEFT); if (before === null) g.moveTo(p, level(v)); else { g.lineTo(p, g.last); g.lineTo(p, level(v)); } g.last = level(v); before = t; }
    g.strokeStyle = `hsl(${215 + 140 * i},70%,55%)`; g.lineWidth = 1.5; g.stroke();
    g.fillStyle = style("--quiet"); g.fillText(m.device, 6, HEAD + 8 + 14 * i); g.fillText("peak " + bytes(most), 6, HEAD + 22 + 14 * i);
  });
}
const under = e => { const r = canvas.getBoundingClientRect(), px = e.clientX - r.left, py = e.clientY - r.top; let best = null; for (const h of hits) if (px >= h[0] - 1 && px <= h[0] + h[2] + 1 && py >= h[1] && py <= h[1] + ROW) best = h; return best && best[3]; };
function zoom(factor, clientX) {
  const r = canvas.getBoundingClientRect(), t = from + Math.max(0, clientX - r.left - LEFT) / (r.width - LEFT) * (to - from);
  from = Math.max(0, t - (t - from) * factor); to = Math.min(data.duration, t + (to - t) * factor); if (to - from < 0.05) to = from + 0.05; draw();
}
canvas.addEventListener("wheel", e => { if (!e.ctrlKey && Math.abs(e.deltaX) < Math.abs(e.deltaY)) { e.preventDefault(); zoom(Math.exp(e.deltaY * 0.002), e.clientX); } }, {passive: false});
let drag = null;
canvas.addEventListener("pointerdown", e => { drag = [e.clientX, from, to]; canvas.setPointerCapture(e.pointerId); });
canvas.addEventListener("pointermove", e => {
  if (drag) {
    const d = (drag[0] - e.clientX) / (canvas.clientWidth - LEFT) * (drag[2] - drag[1]), s = Math.min(Math.max(d, -drag[1]), data.duration - drag[2]);
    from = drag[1] + s; to = drag[2] + s; draw(); return;
  }
  const s = under(e);
  tip.style.display = s ? "block" : "none";
  if (s) {
    tip.textContent = `${S[s[2]]}: ${time(s[1])} at ${time(s[0])}, ${s[3]}${S[s[4]] && S[s[4]] !== S[s[2]] ? " of " + S[s[4]] : ""}${S[s[5]] ? ", " + S[s[5]] : ""}${s[6] ? ", " + bytes(s[6]) : ""}`;
    tip.style.left = Math.min(e.clientX + 12, innerWidth - 300) + "px"; tip.style.top = e.clientY + 14 + "px";
  }
});
canvas.addEventListener("pointerup", () => drag = null);
canvas.addEventListener("pointerleave", () => tip.style.display = "none");
canvas.addEventListener("dblclick", e => { const s = under(e); if (s) { from = Math.max(0, s[0] - s[1] * 0.1); to = s[0] + s[1] * 1.1; draw(); } });
const whole = () => { from = 0; to = data.duration || 1; draw(); };

// -- tables
const holder = el("div", {class: "scroll"}), tabs = el("span", {class: "tabs"});
let by = Object.keys(data.tables)[0], order = 1, up = false;
const columns = ["name", "time", "share", "steps", "mean", "slowest", "device", "line"];
function table() {
  const rows = data.tables[by].filter(r => !filter || r[0].includes(filter) || r[7].includes(filter)), total = data.tables[by].reduce((n, r) => n + r[1], 0) || 1;
  rows.sort((a, b) => (up ? 1 : -1) * (typeof a[order] === "string" ? a[order].localeCompare(b[order]) : a[order] - b[order]));
  const cells = r => [el("td", {}, r[0]), el("td", {}, time(r[1])), el("td", {class: "l"}, el("span", {class: "share", style: `width:${Math.round(90 * r[1] / total)}px`}), (100 * r[1] / total).toFixed(1) + " %"),
    el("td", {}, String(r[3])), el("td", {}, time(r[4])), el("td", {}, time(r[5])), el("td", {}, r[6]), el("td", {class: "l"}, r[7])];
  holder.replaceChildren(el("table", {id: "table"}, el("thead", {}, el("tr", {}, ...columns.map((c, i) => el("th", {class: i === 2 || i === 7 ? "l" : "", onclick: () => { if (order === i) up = !up; else { order = i; up = i === 0 || i > 5; } table(); }}, (i ? c : by) + (order === i ? up ? " ▴" : " ▾" : "")))),
  ), el("tbody", {}, ...rows.slice(0, 500).map(r => el("tr", {}, ...cells(r))))));
  tabs.replaceChildren(...Object.keys(data.tables).map(n => el("button", {class: n === by ? "on" : "", "data-by": n, onclick: () => { by = n; table(); }}, "by " + n)));
}
app.append(el("div", {class: "bar"}, el("h1", {}, data.title), el("span", {class: "facts"}, data.facts), el("button", {id: "fit", onclick: whole}, "show all"),
  el("input", {type: "search", id: "search", placeholder: "operator or line", "aria-label": "search", oninput: e => { filter = e.target.value; draw(); table(); }})),
  el("div", {class: "wrap"}, el("h2", {}, "Timeline"), canvas, el("small", {class: "facts"}, data.left_out ? `The ${data.left_out} shortest steps are in the tables only. ` : "", "Wheel zooms, dragging moves, a double click shows one step."),
    el("h2", {}, "Memory of tensors"), memory, el("h2", {}, "What it was spent on ", tabs), holder), tip);
table(); draw();
new ResizeObserver(() => draw()).observe(app);
})();
