"use strict";
// Draws what the report's data block holds. No library, no network; every label goes in through textContent.
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const NS = "http://www.w3.org/2000/svg";
const DASHES = ["", "7 3", "2 3", "9 3 2 3", "12 3 2 3 2 3"];
const MARKS = [
  "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z", "M-3.5-3.5H3.5V3.5H-3.5Z", "M0-4.5L4.3 3.2H-4.3Z", "M0-5L4.2 0L0 5L-4.2 0Z",
  "M0 4.5L4.3-3.2H-4.3Z", "M-4-4L4 4M-4 4L4-4", "M0-5V5M-5 0H5", "M-4.5-2.2L0-4.8L4.5-2.2V2.5L0 5L-4.5 2.5Z",
];
const state = { problem: 0, start: 0, axis: data.axes[0].id, shown: new Map(), cursor: null, gap: 2 };

// ---- small helpers
const html = (tag, text, attributes = {}) => {
  const node = document.createElement(tag);
  if (text != null) node.textContent = text;
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};
const svg = (tag, attributes = {}, text = null) => {
  const node = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text != null) node.textContent = text;
  return node;
};
const number = (v) => {
  if (v == null || !isFinite(v)) return "–";
  const a = Math.abs(v);
  if (a >= 999.5 && a < 1e6) return v.toFixed(0);
  if (a !== 0 && (a < 1e-3 || a >= 1e6)) return v.toExponential(1).replace("e+", "e");
  return a === 0 ? "0" : v.toPrecision(3);
};
const spread = (v) => (v >= 99.5 ? v.toFixed(0) : v !== 0 && v < 1e-3 ? v.toExponential(0) : v.toPrecision(2));
const short = (v) => String(Number(v.toPrecision(3)));
const power = (k) => "10" + String(k).replace(/[-0-9]/g, (c) => (c === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[c]));
const view = () => data.problems[state.problem].views[state.start];
const axis = () => data.axes.find((a) => a.id === state.axis);
const isShown = (m) => (state.shown.has(m.label) ? state.shown.get(m.label) : !m.extra);
const visible = () => view().methods.filter(isShown);
const styleOf = (i) => ({ name: `s${i % 10}`, dash: DASHES[i % 5], mark: MARKS[i % 8] });

// the value of a step function after the cost x
const after = (xs, ys, x) => {
  let low = 0, high = xs.length;
  while (low < high) { const mid = (low + high) >> 1; if (xs[mid] <= x) low = mid + 1; else high = mid; }
  return low ? ys[low - 1] : null;
};

// ---- scales
const scale = (low, high, from, to, log) => {
  const f = log ? Math.log10 : (v) => v;
  const a = f(low), b = f(high) > f(low) ? f(high) : f(low) + 1;
  const at = (v) => from + ((f(v) - a) / (b - a)) * (to - from);
  at.back = (p) => { const v = a + ((p - from) / (to - from)) * (b - a); return log ? 10 ** v : v; };
  return at;
};
const logTicks = (low, high, most) => {
  const a = Math.ceil(Math.log10(low) - 1e-9), b = Math.floor(Math.log10(high) + 1e-9), ticks = [];
  const stride = Math.max(1, Math.ceil((b - a + 1) / most));
  for (let k = Math.ceil(a / stride) * stride; k <= b && ticks.length < 50; k += stride) {
    ticks.push([10 ** k, k >= -2 && k <= 4 ? String(Number((10 ** k).toPrecision(3))) : power(k)]);
  }
  if (ticks.length < 2) return linearTicks(low, high, 3).filter((t) => t[0] > 0);
  return ticks;
};
const linearTicks = (low, high, most) => {
  const raw = (high - low || 1) / most, size = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * size).find((s) => s >= raw), ticks = [];
  for (let v = Math.ceil(low / step) * step; v <= high + step * 1e-9 && ticks.length < 50; v += step) ticks.push([v, short(Math.abs(v) < step / 1e6 ? 0 : v)]);
  return ticks;
};

// ---- one chart: series of {label, style, x, y, low, high, dots}
class Chart {
  constructor(box, options) {
    this.box = box; this.options = options; this.series = [];
    this.svg = svg("svg", { role: "img", tabindex: "0", focusable: "true" });
    this.tip = html("div", null, { class: "tip", hidden: "" });
    box.append(this.svg, this.tip);
    this.svg.addEventListener("pointermove", (e) => this.point(e));
    this.svg.addEventListener("pointerdown", (e) => this.point(e));
    this.svg.addEventListener("pointerleave", () => this.leave());
    this.svg.addEventListener("blur", () => this.leave());
    this.svg.addEventListener("keydown", (e) => this.key(e));
  }
  show(series, labels) { this.series = series; this.labels = labels; this.draw(); }
  draw() {
    const width = this.box.clientWidth || 600, height = this.svg.clientHeight || 300;
    const { logY } = this.options, logX = byId("logx").checked, band = byId("band").checked && !this.options.small;
    const left = 52, right = width - 12, top = 10, bottom = height - 40;
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("aria-label", `${this.labels.title}. ${this.series.map((s) => s.label).join(", ") || "No method shown"}.`);
    this.svg.replaceChildren();
    const xs = this.series.flatMap((s) => s.x).filter((v) => v != null && (!logX || v > 0));
    const ys = this.series.flatMap((s) => [...s.y, ...(band && s.low ? [...s.low, ...s.high] : [])]).filter((v) => v != null);
    const positive = ys.filter((v) => v > 0);
    if (!xs.length || !(logY ? positive.length : ys.length)) {
      this.x = null;
      this.svg.append(svg("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, this.series.length ? "not stored for these methods" : "no method is shown"));
      return;
    }
    const least = (v) => v.reduce((a, b) => Math.min(a, b), Infinity), most = (v) => v.reduce((a, b) => Math.max(a, b), -Infinity);
    let yLow = least(logY ? positive : ys), yHigh = most(ys);
    if (logY) { yLow = 10 ** Math.floor(Math.log10(Math.max(yLow, 1e-16)) + 1e-9); yHigh = 10 ** Math.ceil(Math.log10(yHigh) - 1e-9); if (yHigh <= yLow) yHigh = 10 * yLow; }
    else if (this.options.clip) [yLow, yHigh] = [Math.max(yLow, this.options.clip[0]) - 0.1, Math.min(yHigh, this.options.clip[1]) + 0.1];
    else { const pad = 0.05 * (yHigh - yLow || 1); yLow -= pad; yHigh += pad; }
    this.range = [logX ? least(xs) : Math.min(0, least(xs)), most(xs)];
    const x = (this.x = scale(...this.range, left, right, logX)), y = (this.y = scale(yLow, yHigh, bottom, top, logY));
    this.inside = [left, right, top, bottom, yLow, yHigh];
    const small = this.options.small;
    for (const [v, text] of (logY ? logTicks : linearTicks)(yLow, yHigh, small ? 4 : 8)) {
      this.svg.append(svg("line", { class: "grid", x1: left, x2: right, y1: y(v), y2: y(v) }), svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, text));
    }
    for (const [v, text] of (logX ? logTicks : linearTicks)(...this.range, Math.max(2, Math.floor(width / 90)))) {
      this.svg.append(svg("line", { class: "grid", x1: x(v), x2: x(v), y1: top, y2: bottom }), svg("text", { x: x(v), y: bottom + 16, "text-anchor": "middle" }, text));
    }
    this.svg.append(svg("rect", { class: "frame", x: left, y: top, width: right - left, height: bottom - top }));
    this.svg.append(svg("text", { x: (left + right) / 2, y: height - 6, "text-anchor": "middle" }, this.labels.x));
    if (this.labels.y) this.svg.append(svg("text", { transform: `translate(11 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, this.labels.y));
    if (band) for (const s of this.series) if (s.low) this.area(s);
    for (const s of this.series) this.curve(s);
    this.overlay = svg("g"); this.svg.append(this.overlay);
    this.mark();
  }
  at(s, ys, i) {  // pixel of a point; a logarithmic axis shows what is not positive at its end
    const [left, , , , yLow, yHigh] = this.inside, v = ys[i];
    const px = byId("logx").checked && s.x[i] <= this.range[0] ? left : this.x(s.x[i]);
    return [px, this.y(Math.min(yHigh, Math.max(v, yLow)))];
  }
  steps(s, ys) {
    let path = "", open = false;
    for (let i = 0; i < ys.length; i++) {
      if (ys[i] == null) { if (open) path += `H${this.x(Math.max(s.x[i], this.range[0])).toFixed(1)}`; open = false; continue; }
      const [px, py] = this.at(s, ys, i).map((v) => v.toFixed(1));
      path += open ? `H${px}V${py}` : `M${px} ${py}`;
      open = true;
    }
    return path;
  }
  area(s) {
    const up = [], down = [];
    for (let i = 0; i < s.x.length; i++) {
      if (s.low[i] == null || s.high[i] == null) continue;
      const [px, a] = this.at(s, s.low, i), [, b] = this.at(s, s.high, i);
      if (up.length) { up.push([px, up[up.length - 1][1]]); down.push([px, down[down.length - 1][1]]); }
      up.push([px, b]); down.push([px, a]);
    }
    if (up.length < 2) return;
    const text = [...up, ...down.reverse()].map((p) => `${p[0].toFixed(1)} ${p[1].toFixed(1)}`).join("L");
    this.svg.append(svg("path", { class: `area ${s.style.name}`, d: `M${text}Z` }));
  }
  curve(s) {
    if (!s.dots) this.svg.append(svg("path", { class: `curve ${s.style.name}`, d: this.steps(s, s.y), "stroke-dasharray": s.style.dash }));
    const spacing = this.options.small ? 90 : 110;
    let next = this.inside[0] + (parseInt(s.style.name[1], 10) * spacing) / 8;
    for (let i = 0; i < s.x.length; i++) {
      if (s.y[i] == null) continue;
      const [px, py] = this.at(s, s.y, i);
      if (!s.dots && px < next) continue;
      next = px + spacing;
      this.svg.append(svg("path", { class: `mark ${s.style.name}`, d: s.style.mark, transform: `translate(${px.toFixed(1)} ${py.toFixed(1)})${s.dots ? " scale(.6)" : this.options.small ? " scale(.75)" : ""}` }));
    }
  }
  mark() {  // the vertical line of the cursor
    if (!this.overlay) return;
    this.overlay.replaceChildren();
    if (state.cursor == null || !this.x || state.cursor < this.range[0] || state.cursor > this.range[1]) return;
    const px = this.x(state.cursor);
    this.overlay.append(svg("line", { class: "rule", x1: px, x2: px, y1: this.inside[2], y2: this.inside[3] }));
  }
  point(e) {
    if (!this.x) return;
    const box = this.svg.getBoundingClientRect(), [left, right] = this.inside;
    this.move(this.x.back(Math.min(right, Math.max(left, e.clientX - box.left))));
  }
  key(e) {
    const [left, right] = this.inside || [], size = { ArrowRight: 1, ArrowLeft: -1, PageUp: 5, PageDown: -5 }[e.key];
    if (!this.x || (!size && e.key !== "Home" && e.key !== "End" && e.key !== "Escape")) return;
    e.preventDefault();
    if (e.key === "Escape") { this.leave(); return; }
    const now = state.cursor == null ? left : Math.min(right, Math.max(left, this.x(state.cursor)));
    const px = e.key === "Home" ? left : e.key === "End" ? right : now + (size * (right - left)) / 40;
    this.move(this.x.back(Math.min(right, Math.max(left, px))));
  }
  move(value) { state.cursor = value; moveCursor(); this.options.small && this.showTip(); }
  leave() { this.tip.hidden = true; state.cursor = null; moveCursor(); }
  showTip() {
    const px = this.x(state.cursor);
    this.tip.replaceChildren(html("strong", `after ${number(state.cursor)} ${axis().unit}`));
    for (const s of this.series) {
      const line = html("div");
      line.append(html("span", s.label), html("span", number(after(s.x, s.y, state.cursor))));
      this.tip.append(line);
    }
    this.tip.setAttribute("role", "status");
    this.tip.hidden = false;
    const onLeft = px > this.box.clientWidth / 2;
    this.tip.style.left = onLeft ? "58px" : "auto";
    this.tip.style.right = onLeft ? "auto" : "16px";
  }
}

// ---- charts of the page
const main = new Chart(byId("main-chart"), { logY: true });
const panels = data.panels.map((p) => {
  const box = html("div"), chart = html("div", null, { class: "chart" });
  box.append(html("h3", p.label), chart);
  byId("panels").append(box);
  return { ...p, chart: new Chart(chart, { logY: p.log, small: true, clip: p.clip }) };
});
const charts = [main, ...panels.map((p) => p.chart)];

function moveCursor() {
  for (const c of charts) c.mark();
  const x = state.cursor;
  byId("cursor").textContent = x == null ? "Gap at the end of the runs" : `Gap after ${number(x)} ${axis().unit}`;
  for (const node of document.querySelectorAll(".legend button")) {
    const m = view().methods[node.dataset.index], c = m.curves[state.axis];
    node.querySelector(".value").textContent = !c ? "failed" : number(x == null ? c.y[c.y.length - 1] : after(c.x, c.y, x));
  }
}

function drawLegend() {
  const lists = [byId("legend"), byId("legend-more")];
  lists.forEach((list) => list.replaceChildren());
  view().methods.forEach((m, index) => {
    const style = styleOf(m.style), item = html("li");
    const button = html("button", null, { type: "button", "aria-pressed": String(isShown(m)), "data-index": index, "data-method": m.label });
    const swatch = svg("svg", { viewBox: "0 0 40 16", "aria-hidden": "true" });
    swatch.append(svg("path", { class: `curve ${style.name}`, d: "M1 8H39", "stroke-dasharray": style.dash }), svg("path", { class: `mark ${style.name}`, d: style.mark, transform: "translate(20 8)" }));
    button.append(swatch, html("span", m.label, { class: "label" }), html("span", "", { class: "value" }));
    button.addEventListener("click", () => { state.shown.set(m.label, !isShown(m)); button.setAttribute("aria-pressed", String(isShown(m))); drawCharts(); });
    item.append(button);
    lists[m.extra ? 1 : 0].append(item);
  });
  byId("more-box").hidden = !view().methods.some((m) => m.extra);
}

function drawCharts() {
  const methods = visible(), label = axis().label;
  main.show(
    methods.filter((m) => m.curves[state.axis]).map((m) => {
      const c = m.curves[state.axis];
      return { label: m.label, style: styleOf(m.style), x: c.x, y: c.y, low: c.low, high: c.high };
    }),
    { x: label, y: "gap f − f*", title: `Gap against ${label}, ${data.problems[state.problem].name}` },
  );
  for (const p of panels) {
    const series = methods.filter((m) => m.run && m.run[p.id]).map((m) => {
      const keep = p.sparse ? m.run[p.id].map((v, i) => (v == null ? -1 : i)).filter((i) => i >= 0) : null;
      const pick = (column) => (keep ? keep.map((i) => column[i]) : column);
      return { label: m.label, style: styleOf(m.style), x: pick(m.run[state.axis]), y: pick(m.run[p.id]), dots: p.dots };
    });
    p.chart.show(series, { x: axis().unit, title: `${p.label} against ${label}` });
  }
  const used = methods.filter((m) => m.run).map((m) => `${m.label}: start ${m.run.start}, seed ${m.run.seed}`);
  byId("middle").textContent = used.length ? `Shown: ${used.join("; ")}.` : "";
  moveCursor();
}

// ---- tables
const head = (row, text, attributes) => row.append(html("th", text, { scope: "col", ...attributes }));
function caption(table, text) {  // read out with the table, and seen above it, where it does not scroll away
  table.replaceChildren(html("caption", text, { class: "hidden-text" }));
  byId(`${table.id}-title`).textContent = text;
}
function drawCosts() {
  const table = byId("costs"), methods = view().methods, costs = (m) => m.costs[state.axis];
  caption(table, `Cost in ${axis().label}, ${data.problems[state.problem].name}${startText()}`);
  const top = html("tr"); head(top, "Method"); data.gaps.forEach((g) => head(top, `gap ${g.toExponential(0)}`)); head(top, "runs");
  const thead = html("thead"), body = html("tbody"); thead.append(top);
  const winners = data.gaps.map((_, j) => {
    const full = methods.filter((m) => costs(m)[j][0] > 0 && costs(m)[j][0] === costs(m)[j][1]);
    return full.length ? full.reduce((a, b) => (costs(b)[j][2] < costs(a)[j][2] ? b : a)) : null;
  });
  for (const m of methods) {
    const row = html("tr"); row.append(html("th", m.label, { scope: "row" }));
    data.gaps.forEach((gap, j) => row.append(costCell(costs(m)[j], winners[j] === m, gap)));
    row.append(html("td", m.failed ? `${m.runs} (${m.failed} failed)` : String(m.runs)));
    body.append(row);
  }
  table.append(thead, body);
}
function costCell([runs, reached, mean, deviation, low, high], best, gap) {
  const cell = html("td", null, { "data-gap": gap, "data-mean": mean ?? "", "data-reached": reached });
  if (!reached) { cell.textContent = `0 of ${runs}`; cell.className = "part"; return cell; }
  if (best) { cell.className = "best"; cell.append(html("span", "★ ", { "aria-hidden": "true" }), html("span", "best: ", { class: "hidden-text" })); }
  cell.append(number(mean));
  if (reached > 1) cell.append(html("span", ` ± ${spread(deviation)}`, { class: "spread" }));
  if (reached < runs) { cell.className = "part"; cell.append(html("small", `${reached} of ${runs}`)); }
  cell.title = `from ${number(low)} to ${number(high)} over ${reached} of ${runs} runs`;
  return cell;
}
function drawOrders() {
  const table = byId("orders"), j = state.gap, names = ["values", "gradients", "Hessians", "third", "all"];
  caption(table, `Mean epochs by order to a gap of ${data.gaps[j].toExponential(0)}, ${data.problems[state.problem].name}${startText()}`);
  const groups = html("tr"), top = html("tr"), thead = html("thead"), body = html("tbody");
  head(groups, "", { class: "text" }); head(groups, "every product counted (ours)", { scope: "colgroup", colspan: 5 }); head(groups, "as the paper counts", { scope: "colgroup", colspan: 5 });
  head(top, "Method"); [0, 1].forEach(() => names.forEach((n) => head(top, n)));
  thead.append(groups, top);
  for (const m of view().methods) {
    const row = html("tr"), [runs, reached] = m.costs.ours[j];
    row.append(html("th", m.label, { scope: "row" }));
    if (reached < runs) row.firstChild.append(html("small", ` (${reached} of ${runs} runs)`));
    for (const counting of ["ours", "paper"]) {
      for (const v of [...m.orders[counting][j], m.costs[counting][j][2]]) row.append(html("td", number(v), reached < runs ? { class: "part" } : {}));
    }
    body.append(row);
  }
  table.append(thead, body);
}
const startText = () => (data.problems[state.problem].views.length > 1 ? `, start: ${view().label}` : "");

// ---- controls
function fill(select, names, value) {
  select.replaceChildren(...names.map((name, i) => html("option", name, { value: i })));
  select.value = String(value);
}
function drawProblem() {
  const problem = data.problems[state.problem];
  state.start = Math.min(state.start, problem.views.length - 1);
  fill(byId("start"), problem.views.map((v) => v.label), state.start);
  byId("start-box").hidden = problem.views.length < 2;
  byId("about").textContent = problem.about;
  drawAll();
}
function drawAll() { drawLegend(); drawCharts(); drawCosts(); drawOrders(); }
const on = (id, act) => byId(id).addEventListener("change", (e) => act(e.target.value));

if (data.problems.length) {
  fill(byId("problem"), data.problems.map((p) => p.name), 0);
  fill(byId("axis"), data.axes.map((a) => a.label), 0);
  fill(byId("gap"), data.gaps.map((g) => g.toExponential(0)), state.gap);
  on("problem", (v) => { state.problem = Number(v); drawProblem(); });
  on("start", (v) => { state.start = Number(v); drawAll(); });
  on("axis", (v) => { state.axis = data.axes[Number(v)].id; state.cursor = null; drawAll(); });
  on("gap", (v) => { state.gap = Number(v); drawOrders(); });
  on("logx", drawCharts); on("band", drawCharts);
  const setAll = (value) => { view().methods.forEach((m) => state.shown.set(m.label, value)); drawLegend(); drawCharts(); };
  byId("all").addEventListener("click", () => setAll(true));
  byId("none").addEventListener("click", () => setAll(false));
  drawProblem();
  let width = window.innerWidth, waiting = 0;
  const redraw = () => { for (const c of charts) c.draw(); };
  window.addEventListener("resize", () => { if (window.innerWidth !== width) { width = window.innerWidth; cancelAnimationFrame(waiting); waiting = requestAnimationFrame(redraw); } });
  window.addEventListener("beforeprint", redraw); window.addEventListener("afterprint", redraw);
}
document.documentElement.dataset.ready = String(performance.now());
})();
