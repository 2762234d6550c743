// Parallel coordinates, on a canvas: thousands of lines stay quick. (Plotly's own need eval, which the policy forbids.)
"use strict";

let drawParallel = () => {};
{
  let plots = null;
  const brushes = new Map();
  let drag = null;
  function geometry() {
    const canvas = byId("parallel-canvas"), axes = [...plots.params, { name: plots.metric, values: plots.trials.map((trial) => trial[1]), log: false, mode: plots.mode }];
    const width = canvas.clientWidth, height = canvas.clientHeight, left = 50, right = 70, top = 34, bottom = 22;
    axes.forEach((axis, number) => {
      axis.x = axes.length < 2 ? left : left + (number / (axes.length - 1)) * (width - left - right);
      const { low, high, beyond } = fitted(axis.values, axis.mode), scale = axis.log ? Math.log10 : (value) => value;
      Object.assign(axis, { low, high, beyond });
      axis.share = (value) => (high === low ? 0.5 : Math.min(1, Math.max(0, (scale(value) - scale(low)) / (scale(high) - scale(low)))));
      axis.y = (value) => height - bottom - axis.share(value) * (height - top - bottom);
    });
    return { canvas, axes, width, height, top, bottom };
  }
  drawParallel = (found) => {
    plots = found || plots;
    if (!plots || !plots.trials.length) return;
    const { canvas, axes, width, height, top, bottom } = geometry();
    const ratio = window.devicePixelRatio || 1;
    canvas.width = width * ratio; canvas.height = height * ratio;
    const pen = canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const kept = plots.trials.map((_, at) => axes.every((axis, number) => {
      const brush = brushes.get(number);
      const y = axis.y(axis.values[at]);
      return !brush || (y >= brush[0] && y <= brush[1]);
    }));
    const best = colour("blue").match(/[0-9a-f]{2}/gi).map((part) => parseInt(part, 16)), pale = colour("line");
    const count = plots.trials.length, faintest = Math.max(0.2, 0.7 - count / 200);
    plots.trials.forEach((_, at) => {
      const worth = count < 2 ? 1 : at / (count - 1);  // they come with the best last
      pen.strokeStyle = kept[at] ? mix(worth, best) : pale;
      pen.globalAlpha = kept[at] ? faintest + (0.9 - faintest) * worth ** 3 : 0.15;
      pen.lineWidth = kept[at] && worth > 0.97 ? 2.5 : 1;
      pen.setLineDash(worth < 0.5 ? [5, 4] : []);
      pen.beginPath();
      axes.forEach((axis, number) => { const y = axis.y(axis.values[at]); if (number) pen.lineTo(axis.x, y); else pen.moveTo(axis.x, y); });
      pen.stroke();
    });
    pen.globalAlpha = 1;
    pen.setLineDash([]);
    pen.font = "12px system-ui, sans-serif";
    axes.forEach((axis, number) => {
      pen.strokeStyle = colour("soft"); pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(axis.x, top); pen.lineTo(axis.x, height - bottom); pen.stroke();
      const brush = brushes.get(number);
      if (brush) { pen.fillStyle = colour("orange"); pen.globalAlpha = 0.5; pen.fillRect(axis.x - 5, brush[0], 10, brush[1] - brush[0]); pen.globalAlpha = 1; }
      pen.fillStyle = colour("text"); pen.textAlign = "center";
      label(pen, axis.name.slice(0, 22), Math.min(Math.max(axis.x, 40), width - 40), 14);
      pen.fillStyle = colour("soft"); pen.textAlign = "left";
      const ticks = axis.names ? axis.names.map((name, at) => [at, name]).slice(0, 12) : [axis.low, axis.high].map((value) => [value, `${axis.beyond && (value === axis.high) === (axis.mode === "min") ? (axis.mode === "min" ? "≥ " : "≤ ") : ""}${Number(value.toPrecision(3))}`]);
      for (const [value, text] of ticks) label(pen, text.slice(0, 14), axis.x + 5, axis.y(value) + (axis.share(value) > 0.5 ? 11 : -3));
    });
    const left = kept.filter(Boolean).length;
    const chosen = left < count ? `${left.toLocaleString("en")} of ${count.toLocaleString("en")} lines selected; ` : "";
    byId("parallel-note").textContent = `${chosen}${plots.is_sample ? `${count.toLocaleString("en")} of ${plots.scored.toLocaleString("en")} trials with a result: the best, and a sample of the others` : `${count.toLocaleString("en")} trials with a result`}`;
  };
  function label(pen, text, x, y) {  // readable over lines
    pen.lineWidth = 4;
    pen.strokeStyle = colour("box");
    pen.strokeText(text, x, y);
    pen.fillText(text, x, y);
  }
  function mix(worth, to) {  // from orange to blue, by which also the colour-blind tell good from bad
    const from = [230, 159, 0];
    return `rgb(${from.map((value, at) => Math.round(value + (to[at] - value) * worth)).join(",")})`;
  }
  function nearest(event) {
    const { canvas, axes } = geometry();
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = 0;
    axes.forEach((axis, number) => { if (Math.abs(axis.x - x) < Math.abs(axes[best].x - x)) best = number; });
    return { number: best, y };
  }
  const canvas = byId("parallel-canvas");
  canvas.addEventListener("pointerdown", (event) => { if (plots && plots.trials.length) { drag = nearest(event); canvas.setPointerCapture(event.pointerId); } });
  canvas.addEventListener("pointermove", (event) => {
    if (!drag) return;
    const { y } = nearest(event);
    brushes.set(drag.number, [Math.min(drag.y, y), Math.max(drag.y, y)]);
    drawParallel();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!drag) return;
    if (Math.abs(nearest(event).y - drag.y) < 4) brushes.delete(drag.number);
    drag = null;
    drawParallel();
  });
  canvas.addEventListener("pointercancel", () => { drag = null; });
  window.addEventListener("resize", () => drawParallel());
}
