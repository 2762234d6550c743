// Plots of runs, for pages and for reports. Everything that comes from a run is set as text, never as HTML.
"use strict";

const byId = (id) => document.getElementById(id);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// A long name breaks between its parts.
const breakable = (text) => text.split(/(?<=[_/])/).flatMap((part, at) => (at ? [element("wbr"), part] : [part]));

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--hf-${name}`).trim();
const PALETTE = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#c9bd2e", "#7f8a94"];
const DASHES = ["solid", "8px 4px", "2px 3px", "8px 3px 2px 3px", "14px 4px", "2px 6px", "14px 3px 2px 3px", "5px 2px"];  // as in holdfast.css

// Plots. Plotly reads a few tags in texts; those of a run are shown as they are written.

const shownText = (text) => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const CONFIG = { displayModeBar: false, responsive: true };
function layout(extra = {}) {
  const axis = { gridcolor: colour("line"), zerolinecolor: colour("line"), linecolor: colour("line"), automargin: true };
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("soft"), size: 11 },
    margin: { l: 48, r: 12, t: 18, b: 34 }, showlegend: false, hovermode: "closest",
    hoverlabel: { bgcolor: colour("box"), font: { color: colour("text") } },
    ...extra, xaxis: { ...axis, ...extra.xaxis }, yaxis: { ...axis, ...extra.yaxis },
  };
}

// The range of results that a plot should show: one trial that diverged must not hide all others. `beyond` counts what is outside.
function fitted(values, mode) {
  const sorted = values.filter((value) => Number.isFinite(value)).sort((a, b) => a - b);
  const whole = { low: sorted[0], high: sorted[sorted.length - 1], beyond: 0 };
  if (sorted.length < 4 || (mode !== "min" && mode !== "max")) return whole;
  const best = mode === "min" ? whole.low : whole.high, worst = mode === "min" ? whole.high : whole.low;
  const usual = sorted[Math.floor((mode === "min" ? 0.4 : 0.6) * (sorted.length - 1))] - best;
  if (!usual || Math.abs(worst - best) <= 30 * Math.abs(usual)) return whole;
  const limit = best + 5 * usual, low = Math.min(best, limit), high = Math.max(best, limit);
  return { low, high, beyond: sorted.filter((value) => value < low || value > high).length };
}
// SVG has no place for a mark that is millions of heights away.
function drawable(values, mode, shown = values) {
  const { low, high, beyond } = fitted(shown, mode), far = (high - low) * 1e6;
  return beyond ? values.map((value) => (value < low - far || value > high + far ? null : value)) : values;
}
function fittedAxis(values, mode, isLog) {
  const { low, high, beyond } = fitted(values, mode), pad = (high - low) * 0.05;
  if (!beyond || isLog) return {};
  const at = mode === "min" ? { y: 1, yanchor: "bottom" } : { y: 0, yanchor: "bottom" };
  return { yaxis: { range: [low - pad, high + pad] },
    annotations: [{ xref: "paper", yref: "paper", x: 1, xanchor: "right", ...at, showarrow: false, font: { size: 11 },
      text: `${beyond.toLocaleString("en")} ${beyond === 1 ? "result is" : "results are"} outside; double-click to zoom out` }] };
}

// An axis of whole numbers, such as reports: a short one has no ticks between them.
function counted(x, title) {
  const known = x.filter(Number.isFinite), span = known.reduce((most, one) => Math.max(most, one), -Infinity) - known.reduce((least, one) => Math.min(least, one), Infinity);
  return { title, ...(span <= 8 ? { tickmode: "linear", tick0: 0, dtick: 1 } : {}) };
}

function runTraces(metric) {
  const kept = { x: [], y: [] };
  for (const part of metric.kept) { kept.x.push(...part.x, null); kept.y.push(...part.y, null); }
  const count = metric.kept.reduce((sum, part) => sum + part.x.length, 0);
  const line = { type: "scatter", mode: count < 60 ? "lines+markers" : "lines", marker: { size: 4 } };
  const undone = metric.undone.map((part) => ({
    ...line, mode: "lines", x: part.x, y: part.y, name: "repeated", line: { color: colour("red"), dash: "dot", width: 1.5 },
    hovertemplate: `%{y:.5g} at %{x}<br>attempt ${part.attempt}, lost in the restart<extra></extra>`,
  }));
  return [...undone, { ...line, ...kept, name: "kept", line: { color: colour("blue"), width: 2 }, connectgaps: true,
    hovertemplate: "%{y:.5g}<br>report %{x}<extra></extra>" }];
}

function failureMarks(failures) {
  return {
    shapes: failures.slice(-100).map((failure) => ({ type: "line", x0: failure.x, x1: failure.x, yref: "paper", y0: 0, y1: 1,
      line: { color: colour("red"), width: 1, dash: "dash" } })),
    annotations: failures.slice(-100).map((failure) => ({ x: failure.x, yref: "paper", y: 1, yanchor: "bottom", xanchor: "center",
      text: "✕", hovertext: `${shownText(failure.kind)}: ${shownText(failure.text)}`, showarrow: false,
      font: { size: 12, color: colour("red-text") } })),
  };
}

const curves = { data: null, shown: 12 };
function drawCurves() {
  const place = byId("curves");
  if (!place || !curves.data || !window.Plotly) return;
  const data = curves.data;
  const log = byId("log-scale") && byId("log-scale").checked;
  if (!data.metrics.length) {
    place.replaceChildren(element("p", { class: "soft", text: "No metric has been reported yet." }));
    return;
  }
  const wanted = data.metrics.slice(0, curves.shown);
  if (place.querySelectorAll(".curve").length !== wanted.length || !place.querySelector(".curve")) {
    place.replaceChildren(...wanted.map(() => element("div", { class: "curve" }, element("h3"), element("div", { class: "plot" }))));
    if (data.metrics.length > wanted.length) {
      const more = element("button", { type: "button", text: `Show all ${data.metrics.length} metrics` });
      more.addEventListener("click", () => { curves.shown = Infinity; drawCurves(); });
      place.append(more);
    }
  }
  byId("curve-legend").hidden = !data.failures.length && !data.metrics.some((metric) => metric.undone.length);
  all(".curve", place).forEach((box, number) => {
    const metric = wanted[number];
    const odd = metric.odd ? ` (${metric.odd} values are NaN or infinite)` : "";
    box.querySelector("h3").textContent = metric.name + odd;
    const marks = failureMarks(data.failures);
    const traces = runTraces(metric);
    Plotly.react(box.querySelector(".plot"), traces,
      layout({ ...marks, xaxis: counted(traces.flatMap((trace) => trace.x), { text: "report", standoff: 4 }), yaxis: { type: log ? "log" : "linear" } }), CONFIG);
  });
}
document.addEventListener("recolour", drawCurves);

// The marks of a timeline: what one means is said below them, for keyboards and fingers too.

const MARK = ".tl-lane [tabindex]";
const tell = (text) => { const place = document.querySelector(".tl-told"); if (place && text) place.textContent = text; };
const tellHint = () => tell("Point at a mark to read what it is. Tab and the arrow keys reach them too.");
for (const kind of ["focusin", "pointerover"]) document.addEventListener(kind, (event) => { const mark = event.target.closest && event.target.closest(MARK); if (mark) tell(mark.title); });
document.addEventListener("keydown", (event) => {
  const mark = event.target.closest(MARK);
  if (!mark || event.ctrlKey || event.metaKey || event.altKey) return;
  const marks = all("[tabindex]", mark.parentElement).sort((a, b) => a.offsetLeft - b.offsetLeft), at = marks.indexOf(mark);
  const next = { ArrowLeft: marks[at - 1], ArrowRight: marks[at + 1], Home: marks[0], End: marks[marks.length - 1] }[event.key];
  if (!next) return;
  mark.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
  event.preventDefault();
});
tellHint();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new Event("recolour")));
if (byId("log-scale")) byId("log-scale").addEventListener("change", drawCurves);
