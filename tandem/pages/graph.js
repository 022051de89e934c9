"use strict";
// The page of a graph. Nodes belong to scopes, which are open or closed; what is visible is laid out in layers, scope by scope.
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const app = document.getElementById("app"), NS = "http://www.w3.org/2000/svg";
const W = 190, H = 40, GAP = 18, ROW = 34, PAD = 12, HEAD = 22, WIDEST = 2600, AT_ONCE = 40;
const scopes = data.scopes, kids = scopes.map(() => []);
scopes.forEach((s, i) => { s.depth = i ? scopes[s.parent].depth + 1 : 0; if (i) kids[s.parent].push(i); });
const pathOf = i => { const p = []; for (; i > 0; i = scopes[i].parent) p.unshift(i); return [0, ...p]; };
const fullName = i => pathOf(i).slice(1).map(s => scopes[s].name).join(" / ");
const el = (tag, attrs = {}, ...inner) => {
  const e = document.createElement(tag);
  for (const [k, v] of Object.entries(attrs)) k.startsWith("on") ? e.addEventListener(k.slice(2), v) : e.setAttribute(k, v);
  e.append(...inner); return e;
};
const svgEl = (tag, attrs = {}, text) => {
  const e = document.createElementNS(NS, tag);
  for (const [k, v] of Object.entries(attrs)) e.setAttribute(k, v);
  if (text !== undefined) e.textContent = text;
  return e;
};
const bytes = n => { for (const u of ["B", "KB", "MB", "GB"]) { if (n < 1024 || u === "GB") return (u === "B" ? n : n.toFixed(1)) + " " + u; n /= 1024; } };
const clip = (t, n) => t.length > n ? t.slice(0, n - 1) + "…" : t;
const counted = (s, n) => { const w = isInput(s) || s === data.inputs ? ["input", "inputs"] : data.words[level.name]; return `${n} ${n === 1 ? w[0] : w[1]}`; };
const percent = x => x >= 0.0995 ? Math.round(100 * x) + " %" : x >= 0.0005 ? (100 * x).toFixed(1) + " %" : "";

let level, colour = data.devices ? "device" : "cost", open = new Set([0]), chosen = null, hits = new Set();

// -- one level: steps or operators
function prepare(name) {
  const l = data.levels[name];
  if (!l.ready) {
    l.name = name;
    l.paths = l.nodes.map(n => pathOf(n.scope));
    l.sums = scopes.map(() => ({cost: 0, bytes: 0, count: 0, first: Infinity, kind: null}));
    l.nodes.forEach((n, i) => l.paths[i].forEach(s => {
      const t = l.sums[s];
      t.cost += n.cost; t.bytes += n.bytes; t.count++; t.first = Math.min(t.first, i);
    }));
    l.into = l.nodes.map(() => []); l.out = l.nodes.map(() => []);
    l.edges.forEach((e, i) => { l.out[e[0]].push(i); l.into[e[1]].push(i); });
    l.ready = true;
  }
  level = l;
}
const isInput = s => s > 0 && pathOf(s)[1] === data.inputs;
const visible = i => { for (const s of level.paths[i]) if (!open.has(s)) return "s" + s; return "n" + i; };
const sumOf = id => id[0] === "s" ? level.sums[+id.slice(1)] : level.nodes[+id.slice(1)];
const childrenOf = s => {
  const made = kids[s].filter(k => level.sums[k].count).map(k => "s" + k);
  level.nodes.forEach((n, i) => { if (n.scope === s) made.push("n" + i); });
  const first = id => id[0] === "s" ? level.sums[+id.slice(1)].first : +id.slice(1);
  return made.sort((a, b) => first(a) - first(b));
};

// -- layout: boxes with places relative to the scope around
function place(s) {
  const items = childrenOf(s), position = new Map(items.map((id, i) => [id, i])), depth = scopes[s].depth;
  const child = i => { const p = level.paths[i]; return p[depth] !== s ? null : p.length > depth + 1 ? "s" + p[depth + 1] : "n" + i; };
  const above = items.map(() => new Set());
  if (items.length > 1) for (const [a, b] of level.edges) {
    const from = child(a), to = child(b);
    if (from && to && from !== to && !(s === 0 && from === "s" + data.inputs)) {
      const x = position.get(from), y = position.get(to);
      if (x < y) above[y].add(x);
    }
  }
  const boxes = items.map(id => id[0] === "s" && open.has(+id.slice(1)) ? place(+id.slice(1)) : {id, w: W, h: H});
  const rank = [], rows = [];
  items.forEach((_, i) => { rank[i] = 0; above[i].forEach(a => rank[i] = Math.max(rank[i], rank[a] + 1)); (rows[rank[i]] ||= []).push(i); });
  let y = HEAD + PAD, widest = W;
  const lines = [];
  for (const row of rows) {
    const middle = i => above[i].size ? [...above[i]].reduce((t, a) => t + boxes[a].x + boxes[a].w / 2, 0) / above[i].size : 1e9;
    row.sort((a, b) => middle(a) - middle(b) || a - b);
    let line = [], width = 0;
    const end = () => {
      if (!line.length) return;
      let x = 0, tall = 0;
      for (const i of line) { boxes[i].x = x; boxes[i].y = y; x += boxes[i].w + GAP; tall = Math.max(tall, boxes[i].h); }
      lines.push([line, x - GAP]); widest = Math.max(widest, x - GAP); y += tall + ROW; line = []; width = 0;
    };
    for (const i of row) { if (width && width + boxes[i].w > WIDEST) end(); line.push(i); width += boxes[i].w + GAP; }
    end();
  }
  for (const [line, width] of lines) for (const i of line) boxes[i].x += PAD + (widest - width) / 2;
  return {id: "s" + s, w: widest + 2 * PAD, h: Math.max(y - ROW + PAD, HEAD + H), boxes};
}

// -- drawing
const shades = {kernel: "37,99,235", library: "217,119,6", input: "5,150,105", node: "100,116,139"};
function fill(id) {
  const t = sumOf(id), all = level.sums[0];
  if (colour === "device") { const d = t.device ?? (id[0] === "s" ? deviceOf(+id.slice(1)) : null); return d ? data.devices[d] : "var(--box)"; }
  if (colour === "kind") return id[0] === "s" ? "var(--box)" : `rgba(${shades[t.kind]},.22)`;
  const share = colour === "memory" ? t.bytes / (all.bytes || 1) : t.cost / (all.cost || 1);
  return share > 0 ? `color-mix(in srgb, rgb(var(--hot)) ${Math.round(100 * Math.min(0.85, Math.sqrt(share)))}%, var(--box))` : "var(--box)";
}
function deviceOf(s) {
  const found = new Set(level.nodes.filter((n, i) => level.paths[i].includes(s)).map(n => n.device));
  return found.size === 1 ? [...found][0] : null;
}
const svg = svgEl("svg", {role: "img", "aria-label": data.title}), view = svgEl("g"), edgesG = svgEl("g"), boxesG = svgEl("g");
view.append(boxesG, edgesG); svg.append(view);
let at = new Map(), lines = [];
function title(id) {
  if (id[0] === "n") return level.nodes[+id.slice(1)].title;
  return scopes[+id.slice(1)].name;
}
function draw() {
  at = new Map(); lines = [];
  boxesG.replaceChildren(); edgesG.replaceChildren();
  const put = (box, x, y, parent) => {
    const id = box.id, s = id[0] === "s" ? +id.slice(1) : -1, isOpen = !!box.boxes;
    at.set(id, {x, y, w: box.w, h: box.h, isOpen});
    if (id !== "s0") {
      const g = svgEl("g", {class: "item" + (isOpen ? " open" : "") + (id === chosen ? " on" : "") + (hits.has(id) ? " hit" : ""), transform: `translate(${x},${y})`, "data-id": id});
      const r = svgEl("rect", {width: box.w, height: box.h});
      if (!isOpen) r.style.fill = fill(id);
      g.append(r);
      const t = sumOf(id);
      if (isOpen) g.append(svgEl("text", {x: 8, y: 15, class: "t"}, "▾ " + clip(title(id), 40)));
      else {
        g.append(svgEl("text", {x: 8, y: 16, class: "t"}, (s >= 0 ? "▸ " : "") + clip(title(id), 25)));
        const share = percent(t.cost / (level.sums[0].cost || 1));
        const note = s >= 0 ? counted(s, t.count) : t.note;
        g.append(svgEl("text", {x: 8, y: 31, class: "q"}, clip(note, share ? 24 : 32)));
        if (share) g.append(svgEl("text", {x: W - 6, y: 31, class: "q", "text-anchor": "end"}, share));
      }
      boxesG.append(g);
    }
    for (const inner of box.boxes || []) put(inner, x + inner.x, y + inner.y);
  };
  const whole = place(0);
  put(whole, 0, 0);
  const seen = new Map(), closedInputs = !open.has(data.inputs);
  level.edges.forEach((e, i) => {
    const a = visible(e[0]), b = visible(e[1]);
    if (a === b) return;
    const key = a + ">" + b, found = seen.get(key);
    if (found) { found.count++; found.bytes += e[2]; if (found.labels.length < 12) found.labels.push(e[3]); }
    else seen.set(key, {a, b, count: 1, bytes: e[2], labels: [e[3]], waits: e[4] === 1});
  });
  for (const line of seen.values()) {
    const p = at.get(line.a), q = at.get(line.b), fromInputs = closedInputs && line.a === "s" + data.inputs;
    const x0 = p.x + p.w / 2, y0 = p.y + p.h, x1 = q.x + q.w / 2, y1 = q.y, up = y1 < y0;
    const bend = up ? 60 : Math.max(14, Math.min(90, (y1 - y0) / 2));
    line.path = svgEl("path", {class: "e" + (up ? " back" : "") + (line.waits ? " wait" : ""), d: `M${x0},${y0} C${x0},${y0 + bend} ${x1},${y1 - bend} ${x1},${y1}`});
    line.path.append(svgEl("title", {}, line.waits ? line.labels[0] : `${title(line.a)} → ${title(line.b)}: ${bytes(line.bytes)}\n${line.labels.join("\n")}${line.count > line.labels.length ? "\n…" : ""}`));
    line.hidden = fromInputs;
    if (fromInputs) line.path.style.display = "none";
    edgesG.append(line.path); lines.push(line);
  }
  mark();
}
function mark() {
  boxesG.querySelectorAll(".item").forEach(g => g.classList.toggle("on", g.dataset.id === chosen));
  for (const l of lines) {
    const on = l.a === chosen || l.b === chosen;
    l.path.classList.toggle("on", on);
    if (l.hidden) l.path.style.display = on ? "" : "none";
  }
}

// -- zoom and pan
let k = 1, ox = 0, oy = 0;
const move = () => view.setAttribute("transform", `translate(${ox},${oy}) scale(${k})`);
const room = () => svg.getBoundingClientRect();
function zoom(factor, x = room().width / 2, y = room().height / 2) {
  const n = Math.min(4, Math.max(0.02, k * factor)); ox = x - (x - ox) * n / k; oy = y - (y - oy) * n / k; k = n; move();
}
function fit() {
  const b = at.get("s0"), r = room();
  if (!b || !r.width) return;
  k = Math.min(1.2, Math.min((r.width - 20) / b.w, Math.max((r.height - 20) / b.h, 0.28))); ox = (r.width - b.w * k) / 2; oy = 10; move();
}
function center(id) {
  const b = at.get(id), r = room();
  if (!b) return;
  k = Math.max(k, 0.7); ox = r.width / 2 - (b.x + b.w / 2) * k; oy = Math.min(r.height / 2, 200) - b.y * k; move();
}
svg.addEventListener("wheel", e => { e.preventDefault(); const r = room(); zoom(Math.exp(-e.deltaY * 0.0015), e.clientX - r.left, e.clientY - r.top); }, {passive: false});
const fingers = new Map();
let moved = 0, pinch = 0, pressed = null;
svg.addEventListener("pointerdown", e => { fingers.set(e.pointerId, e); moved = 0; pinch = 0; pressed = e.target.closest(".item"); svg.setPointerCapture(e.pointerId); svg.classList.add("drag"); });
svg.addEventListener("pointermove", e => {
  const last = fingers.get(e.pointerId);
  if (!last) return;
  if (fingers.size === 1) { ox += e.clientX - last.clientX; oy += e.clientY - last.clientY; moved += Math.abs(e.clientX - last.clientX) + Math.abs(e.clientY - last.clientY); move(); }
  fingers.set(e.pointerId, e);
  if (fingers.size === 2) {
    const [p, q] = [...fingers.values()], d = Math.hypot(p.clientX - q.clientX, p.clientY - q.clientY), r = room();
    if (pinch) zoom(d / pinch, (p.clientX + q.clientX) / 2 - r.left, (p.clientY + q.clientY) / 2 - r.top);
    pinch = d; moved = 99;
  }
});
const release = e => { fingers.delete(e.pointerId); svg.classList.remove("drag"); };
svg.addEventListener("pointerup", e => {
  if (moved < 5 && fingers.size === 1) pressed ? choose(pressed.dataset.id) : choose(null);
  release(e);
});
svg.addEventListener("pointercancel", release);
svg.addEventListener("dblclick", () => { if (pressed && pressed.dataset.id[0] === "s") toggle(+pressed.dataset.id.slice(1)); });

// -- opening and closing
function keepPlace(id, change) {  // what was clicked stays where it is on the screen
  const before = at.get(id), x = before ? before.x * k + ox : 0, y = before ? before.y * k + oy : 0;
  change(); draw();
  const after = at.get(id);
  if (before && after) { ox = x - after.x * k; oy = y - after.y * k; }
  move();
}
function toggle(s) { keepPlace("s" + s, () => { open.has(s) ? open.delete(s) : open.add(s); alone(s); }); show(); }
function alone(s) {  // a scope with a single scope inside is opened with it
  while (open.has(s)) { const inner = childrenOf(s); if (inner.length !== 1 || inner[0][0] !== "s") return; s = +inner[0].slice(1); open.add(s); }
}
const count = () => { let n = 0; const go = s => { for (const c of childrenOf(s)) { n++; if (c[0] === "s" && open.has(+c.slice(1))) go(+c.slice(1)); } }; go(0); return n; };
function openSome() {  // as much as can be taken in at once, level by level
  open = new Set([0]); alone(0);
  for (let depth = 1; ; depth++) {
    const next = scopes.map((_, i) => i).filter(i => i && scopes[i].depth <= depth && i !== data.inputs && !isInput(i) && level.sums[i].count);
    const tried = new Set([...open, ...next]), kept = open;
    open = tried;
    if (next.length === kept.size || depth > 40) return;
    if (count() > AT_ONCE) { open = kept; return; }
  }
}
const setOpen = which => { open = new Set(which); draw(); fit(); };

// -- the panel on the side
const side = el("div", {class: "side", id: "side"});
function choose(id) { chosen = id; mark(); show(); }
const link = (text, go) => el("a", {class: "link", onclick: go}, text);
function source(file, line) {
  const text = data.files[file], pre = el("pre", {class: "src"});
  const lines = (text || "").split("\n"), first = Math.max(0, line - 40);
  lines.slice(first, line + 40).forEach((t, i) => {
    const n = first + i + 1, row = el("span", n === line ? {class: "here"} : {}, el("span", {class: "no"}, String(n).padStart(4) + "  "), t);
    pre.append(row, "\n");
  });
  requestAnimationFrame(() => { const h = pre.querySelector(".here"); if (h) pre.scrollTop = h.offsetTop - pre.offsetTop - 90; });
  return pre;
}
function reveal(i) {
  level.paths[i].forEach(s => open.add(s)); draw(); choose("n" + i); center("n" + i);
}
function neighbours(indices, end, name) {
  const seen = new Set(), made = [];
  for (const e of indices) {
    const other = level.edges[e][end];
    if (seen.has(other)) continue;
    seen.add(other);
    if (made.length < 30) made.push(el("div", {class: "row"}, link(level.nodes[other].title, () => reveal(other)), " ", el("small", {class: "facts"}, level.edges[e][3])));
  }
  return made.length ? [el("h3", {}, name), ...made] : [];
}
function show() {
  side.replaceChildren();
  const all = level.sums[0];
  if (!chosen || !at.has(chosen)) {
    side.append(el("h2", {}, data.title), el("div", {class: "row"}, data.facts.join(", ")), el("h3", {}, "what costs most"));
    const order = level.nodes.map((n, i) => i).sort((a, b) => level.nodes[b].cost - level.nodes[a].cost).slice(0, 12);
    for (const i of order) if (level.nodes[i].cost > 0) side.append(el("div", {class: "row"}, link(level.nodes[i].title, () => reveal(i)), " " + percent(level.nodes[i].cost / all.cost), el("small", {class: "facts"}, " " + fullName(level.nodes[i].scope))));
    side.append(el("h3", {}, "how to look"), el("div", {}, "Click for details, double-click a group to open or close it. Wheel zooms, dragging moves. / searches. Costs are estimates from sizes."));
    return;
  }
  const id = chosen, t = sumOf(id), share = percent(t.cost / (all.cost || 1));
  if (id[0] === "s") {
    const s = +id.slice(1);
    side.append(el("h2", {}, fullName(s)), el("div", {class: "row"}, `${counted(s, t.count)}${share ? ", " + share + " of the cost" : ""}, ${bytes(t.bytes)}`),
      el("p", {}, el("button", {id: "toggle", onclick: () => toggle(s)}, open.has(s) ? "close" : "open")));
    const inner = level.nodes.map((n, i) => i).filter(i => level.paths[i].includes(s)).sort((a, b) => level.nodes[b].cost - level.nodes[a].cost || a - b).slice(0, 40);
    side.append(el("h3", {}, "inside, what costs most first"));
    for (const i of inner) side.append(el("div", {class: "row"}, link(level.nodes[i].title, () => reveal(i)), " " + percent(level.nodes[i].cost / (all.cost || 1)) + " ", el("small", {class: "facts"}, level.nodes[i].note)));
    return;
  }
  const i = +id.slice(1), n = level.nodes[i];
  side.append(el("h2", {}, n.title), el("div", {class: "row"}, n.note), el("div", {class: "row"}, [fullName(n.scope), share && share + " of the cost", n.bytes ? bytes(n.bytes) : "", n.device].filter(x => x).join(", ")));
  if (n.file) side.append(el("h3", {}, "source"), el("div", {class: "row"}, el("a", {href: `vscode://file/${data.paths[n.file]}:${n.line}`, title: "open in an editor"}, `${data.paths[n.file]}:${n.line}`)), ...(data.files[n.file] !== undefined ? [source(n.file, n.line)] : []));
  if (n.names.length) side.append(el("h3", {}, "parameters and inputs"), ...n.names.map(x => el("div", {class: "row"}, x)));
  if (n.text.length) side.append(el("h3", {}, "computes"), el("pre", {}, n.text.join("\n")));
  side.append(...neighbours(level.into[i], 0, "from"), ...neighbours(level.out[i], 1, "to"));
}

// -- search
const hitsBox = el("div", {class: "hits", id: "hits"});
const box = el("input", {type: "search", placeholder: "search", id: "search", "aria-label": "search", oninput: () => find(), onkeydown: e => {
  if (e.key === "Enter" && found.length) { pick(found[(cursor + (e.shiftKey ? found.length - 1 : 1)) % found.length] ?? found[0]); }
  if (e.key === "Escape") { box.value = ""; find(); box.blur(); }
}});
let found = [], cursor = -1;
function find() {
  const words = box.value.toLowerCase().split(/\s+/).filter(x => x);
  found = []; cursor = -1;
  if (words.length) level.nodes.forEach((n, i) => {
    n.search ||= [n.title, n.note, fullName(n.scope), fullName(n.scope).replaceAll(" / ", "."), n.file ? `${n.file}:${n.line}` : "", ...n.names, ...n.text].join("\n").toLowerCase();
    if (words.every(w => n.search.includes(w))) found.push(i);
  });
  hits = new Set(found.slice(0, 500).map(visible));
  boxesG.querySelectorAll(".item").forEach(g => g.classList.toggle("hit", hits.has(g.dataset.id)));
  hitsBox.replaceChildren(...(words.length ? [el("div", {class: "facts"}, `${found.length} found`)] : []), ...found.slice(0, 60).map(i => el("div", {onclick: () => pick(i)}, level.nodes[i].title + "  ", el("small", {}, fullName(level.nodes[i].scope) + " " + level.nodes[i].note))));
  hitsBox.classList.toggle("on", words.length > 0);
}
function pick(i) { cursor = found.indexOf(i); hitsBox.classList.remove("on"); level.paths[i].forEach(s => open.add(s)); hits = new Set(found.slice(0, 500).map(visible)); reveal(i); }
document.addEventListener("keydown", e => { if (e.key === "/" && document.activeElement !== box) { e.preventDefault(); box.focus(); } });
document.addEventListener("click", e => { if (!e.target.closest(".find")) hitsBox.classList.remove("on"); });

// -- the page
const pickLevel = el("select", {id: "level", title: "what a box is", onchange: e => { prepare(e.target.value); chosen = null; openSome(); draw(); fit(); show(); find(); }},
  ...Object.keys(data.levels).map(n => el("option", {value: n}, data.words[n][1])));
const colours = [["cost", "colour: cost"], ["memory", "colour: memory"], ["kind", "colour: kind"], ...(data.devices ? [["device", "colour: device"]] : [])];
const pickColour = el("select", {id: "colour", onchange: e => { colour = e.target.value; draw(); move(); }}, ...colours.map(([v, t]) => el("option", {value: v, ...(v === colour ? {selected: ""} : {})}, t)));
const button = (text, id, what, go) => el("button", {id, title: what, onclick: go}, text);
app.append(el("div", {class: "bar"}, el("h1", {}, data.title), el("span", {class: "facts"}, data.facts.join(", ")),
  ...(Object.keys(data.levels).length > 1 ? [pickLevel] : []), pickColour,
  button("open all", "all", "open every group", () => setOpen(scopes.map((_, i) => i).filter(i => !isInput(i) && i !== data.inputs))),
  button("close all", "none", "close every group", () => setOpen([0])), button("fit", "fit", "show all of it", fit),
  button("+", "in", "zoom in", () => zoom(1.3)), button("−", "out", "zoom out", () => zoom(1 / 1.3)), el("span", {class: "find"}, box, hitsBox)),
  el("div", {class: "main"}, el("div", {class: "canvas"}, svg), side));
prepare(Object.keys(data.levels)[0]); openSome(); draw(); fit(); show();
new ResizeObserver(() => { if (!chosen) fit(); }).observe(svg);
})();
