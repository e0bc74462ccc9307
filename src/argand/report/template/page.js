"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (name) => document.getElementById(name);
const make = (tag, fields = {}, ...children) => {
  const element = tag === "svg" || fields.svg
    ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [key, value] of Object.entries(fields)) if (key !== "svg") element.setAttribute(key, value);
  element.append(...children);
  return element;
};

// ---- every stage's text, made when it is opened ----
const boxes = data.texts.map((text, number) => {
  const title = `${text.stage}${text.detail ? " · " + text.detail : ""}${text.compile ? " · compile " + text.compile : ""}`;
  const box = make("details", { class: "box", id: `text-${number}` }, make("summary", {}, make("code", {}, title)));
  box.addEventListener("toggle", () => fill(box, number));
  return box;
});
byId("texts-list").append(...boxes);
let wanted = "";

function fill(box, number) {
  if (!box.open) return;
  const pre = box.querySelector("pre") || box.appendChild(make("pre"));
  const text = data.texts[number].text;
  pre.replaceChildren();
  if (!wanted) { pre.append(text); return; }
  const low = text.toLowerCase();
  let from = 0, first = null;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, from)) {
    const found = make("mark", {}, text.slice(at, at + wanted.length));
    first = first || found;
    pre.append(text.slice(from, at), found);
    from = at + wanted.length;
  }
  pre.append(text.slice(from));
  if (first) pre.scrollTop = Math.max(0, first.offsetTop - pre.offsetTop - 60);
}

function search() {
  wanted = byId("search").value.trim().toLowerCase();
  let shown = 0;
  boxes.forEach((box, number) => {
    const text = data.texts[number];
    const fits = !wanted || `${text.stage} ${text.detail} ${text.text}`.toLowerCase().includes(wanted);
    box.hidden = !fits;
    shown += fits;
    fill(box, number);
  });
  byId("found").textContent = wanted ? `${shown} of ${boxes.length} texts` : `${boxes.length} texts`;
}
byId("search").addEventListener("input", search);

// A link to a text or a graph opens it.
function follow() {
  const box = byId(location.hash.slice(1));
  if (!box || box.tagName !== "DETAILS") return;
  if (box.hidden) { byId("search").value = ""; search(); }
  box.open = true;
  box.scrollIntoView();
}
addEventListener("hashchange", follow);

// ---- the timeline ----
const colours = { stage: "#7c93d8", compile: "#c98b2b", beside: "#e0c38c", compiled: "#2f9e6b", eager: "#9a9fb0", "in Python": "#c2544d", trial: "#b07cc6" };

function lanes(spans) {
  // Spans inside of others lie below them; threads and calls are apart.
  const rows = [], ends = new Map();
  for (const span of spans) {
    const group = span.kind === "stage" ? `thread ${span.thread}` : "calls";
    const open = ends.get(group) || [];
    while (open.length && open[open.length - 1] <= span.start + 1e-7) open.pop();
    rows.push({ span, group, depth: open.length });
    open.push(span.start + span.seconds);
    ends.set(group, open);
  }
  return rows;
}

function drawTimeline() {
  const spans = data.timeline.filter((span) => span.seconds > 0);
  const holder = byId("timeline-chart");
  if (!spans.length) { holder.append("nothing was timed"); return; }
  const end = Math.max(...spans.map((span) => span.start + span.seconds));
  const begin = Math.min(...spans.map((span) => span.start));
  const rows = lanes(spans), groups = [...new Set(rows.map((row) => row.group))].sort();
  const deepest = new Map(groups.map((g) => [g, Math.min(6, Math.max(...rows.filter((r) => r.group === g).map((r) => r.depth)))]));
  const tops = new Map();
  let top = 4;
  for (const group of groups) { tops.set(group, top + 14); top += 14 + 15 * (deepest.get(group) + 1) + 8; }
  const width = Math.max(320, Math.min(1100, holder.clientWidth || 1100)), scale = width / (end - begin || 1);
  const svg = make("svg", { viewBox: `0 0 ${width} ${top + 16}`, role: "img", "aria-label": "timeline" });
  groups.forEach((group, k) => svg.append(make("text", { svg: 1, x: 2, y: tops.get(group) - 4 }, group === "calls" ? "calls" : `compiling, thread ${k + 1}`)));
  for (const { span, group, depth } of rows) {
    if (depth > 6) continue;
    const w = span.seconds * scale;
    if (w < 0.15 && depth > 2) continue;
    const box = make("rect", { svg: 1, x: ((span.start - begin) * scale).toFixed(2), y: tops.get(group) + 15 * depth, width: Math.max(w, 0.6).toFixed(2), height: 13, rx: 2, fill: colours[span.kind] || colours.stage });
    box.append(make("title", { svg: 1 }, `${span.name}: ${(span.seconds * 1e3).toFixed(2)} ms at ${(span.start * 1e3).toFixed(0)} ms`));
    svg.append(box);
    if (w > 60) {
      const text = make("text", { svg: 1, x: ((span.start - begin) * scale + 3).toFixed(2), y: tops.get(group) + 15 * depth + 10, style: "fill:#fff;pointer-events:none" }, span.name.slice(0, Math.floor(w / 6.4)));
      svg.append(text);
    }
  }
  for (let k = 0; k <= 4; k++) {
    const x = (k / 4) * width;
    svg.append(make("text", { svg: 1, x: Math.min(Math.max(x, 2), width - 2), y: top + 10, "text-anchor": k === 0 ? "start" : k === 4 ? "end" : "middle" }, `${((begin + ((end - begin) * k) / 4) * 1e3).toFixed(0)} ms`));
  }
  holder.append(svg);
}

function drawMemory() {
  const points = data.memory, holder = byId("memory-chart");
  if (points.length < 2) { holder.append("too short to see"); return; }
  const width = Math.max(320, Math.min(1100, holder.clientWidth || 1100)), height = 150;
  const end = points[points.length - 1][0] || 1, most = Math.max(...points.map((p) => p[1])), least = Math.min(...points.map((p) => p[1]));
  const low = Math.max(0, least - 0.1 * (most - least || most)), y = (v) => height - 18 - ((v - low) / (most - low || 1)) * (height - 40);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "memory over time" });
  const path = points.map((p, k) => `${k ? "L" : "M"}${((p[0] / end) * width).toFixed(1)} ${y(p[1]).toFixed(1)}`).join("");
  svg.append(make("path", { svg: 1, d: `${path}L${width} ${height - 18}L0 ${height - 18}Z`, fill: "#7c93d8", "fill-opacity": 0.25 }));
  svg.append(make("path", { svg: 1, d: path, fill: "none", stroke: "#7c93d8", "stroke-width": 1.5 }));
  const megabytes = (v) => `${(v / 1e6).toFixed(0)} MB`;
  svg.append(make("text", { svg: 1, x: 2, y: 12 }, `most: ${megabytes(most)} · at the begin ${megabytes(points[0][1])} · kept by kernels ${megabytes(Math.max(...points.map((p) => p[2])))}`));
  svg.append(make("text", { svg: 1, x: 2, y: height - 4 }, "0"), make("text", { svg: 1, x: width - 2, y: height - 4, "text-anchor": "end" }, `${end.toFixed(1)} s`));
  holder.append(svg);
}

// ---- Perfetto (ui.perfetto.dev, chrome://tracing) ----
function perfetto() {
  const threads = new Map();
  const number = (span) => {
    const name = span.kind === "stage" ? `compiling ${span.thread}` : "calls";
    if (!threads.has(name)) threads.set(name, threads.size + 1);
    return threads.get(name);
  };
  const found = data.timeline.map((span) => ({ name: span.name, cat: span.kind, ph: "X", ts: span.start * 1e6, dur: span.seconds * 1e6, pid: 1, tid: number(span) }));
  for (const [at, process, arena] of data.memory) found.push({ name: "memory", ph: "C", ts: at * 1e6, pid: 1, args: { process, arena } });
  for (const [name, tid] of threads) found.push({ name: "thread_name", ph: "M", pid: 1, tid, args: { name } });
  return { traceEvents: found, displayTimeUnit: "ms" };
}
byId("perfetto").addEventListener("click", () => {
  const link = make("a", { download: "argand-trace.json", href: URL.createObjectURL(new Blob([JSON.stringify(perfetto())], { type: "application/json" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
});

drawTimeline();
drawMemory();
search();
follow();
