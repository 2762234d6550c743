// The page of a search: a table that the server sorts and filters, and plots of a bounded number of trials.
"use strict";

{
  const table = { sort: "", down: false, from: 0, q: "", status: "", latest: 0 };
  const where = byId("trials").dataset.trials;
  const trialUrl = (directory) => `/run/${`${page.address}/${directory}`.split("/").map(encodeURIComponent).join("/")}`;

  function heads(found) {
    const head = (text, sort, extra = "") => {
      const cell = element("th", { "data-sort": sort, class: extra, text, tabindex: "0" });
      if (table.sort === sort) cell.setAttribute("aria-sort", table.down ? "descending" : "ascending");
      return cell;
    };
    byId("rows").tHead.rows[0].replaceChildren(
      element("th", { class: "pick" }), head("Trial", "name"), head("Status", "status"), head("Iterations", "iteration", "num"),
      head(found.metric || "result", "value", "num"), ...found.params.map((name) => head(name, `param:${name}`)),
      head("Time", "seconds", "num"), element("th", { text: "Why" }));
  }
  function row(found, trial) {
    const address = `${page.address}/${trial.address}`;
    const link = element("a", { href: trialUrl(trial.address), text: trial.name });
    const name = element("td", { class: "name" }, link);
    if (trial.is_best) name.append(" ", element("span", { class: "tag", text: "★ best" }));
    const seconds = trial.seconds < 60 ? `${trial.seconds.toFixed(1)} s` : `${Math.floor(trial.seconds / 60)} m ${Math.floor(trial.seconds % 60)} s`;
    return element("tr", { tabindex: "-1", "data-address": address },
      element("td", { class: "pick" }, element("input", { type: "checkbox", name: "pick", value: address, "aria-label": `Select ${trial.name}` })),
      name, element("td", {}, element("span", { class: `badge ${trial.status.toLowerCase()}`, text: trial.status.toLowerCase() })),
      element("td", { class: "num", text: trial.iteration }), element("td", { class: "num", text: trial.value }),
      ...trial.params.map((text) => element("td", { class: "small nowrap", text: text.length > 32 ? `${text.slice(0, 31)}…` : text, title: text })),
      element("td", { class: "num small nowrap", text: seconds }), element("td", { class: "small break soft", text: trial.text }));
  }
  async function loadTrials() {
    const number = ++table.latest;
    const query = new URLSearchParams({ sort: table.sort, down: table.down ? "1" : "", from: table.from, q: table.q, status: table.status });
    const found = await getJson(`${where}?${query}`);
    if (number !== table.latest) return;
    const picked = new Set(all("input[name=pick]:checked").map((box) => box.value));
    heads(found);
    byId("rows").tBodies[0].replaceChildren(...found.rows.map((trial) => row(found, trial)));
    for (const box of all("input[name=pick]")) box.checked = picked.has(box.value);
    const last = found.from + found.rows.length;
    byId("trial-count").textContent = found.total ? `${(found.from + 1).toLocaleString()} to ${last.toLocaleString()} of ${found.total.toLocaleString()}` : "No trial matches.";
    byId("previous").disabled = found.from === 0;
    byId("next").disabled = last >= found.total;
    table.size = found.size;
    countPicked();
  }
  const failed = (error) => { byId("trial-count").textContent = error.message; };
  const reload = (changes = {}) => { Object.assign(table, changes); loadTrials().catch(failed); };
  let typing = null;
  byId("filter").addEventListener("input", (event) => { clearTimeout(typing); typing = setTimeout(() => reload({ q: event.target.value, from: 0 }), 150); });
  byId("status").addEventListener("change", (event) => reload({ status: event.target.value, from: 0 }));
  byId("previous").addEventListener("click", () => reload({ from: Math.max(0, table.from - table.size) }));
  byId("next").addEventListener("click", () => reload({ from: table.from + table.size }));
  const sortBy = (event) => {
    const head = event.target.closest("#rows th[data-sort]");
    if (head && (event.type === "click" || event.key === "Enter")) reload({ down: table.sort === head.dataset.sort ? !table.down : false, sort: head.dataset.sort, from: 0 });
  };
  byId("rows").addEventListener("click", sortBy);
  byId("rows").addEventListener("keydown", sortBy);

  // Plots

  let plots = null;
  async function loadPlots() {
    plots = await getJson(byId("plots").dataset.plots);
    draw();
  }
  function draw() {
    if (!plots || !window.Plotly) return;
    drawBest(); drawParallel(); drawImportance(); drawSlices(); drawLearning(); drawExploits();
  }
  function drawBest() {
    const x = plots.best.map((point) => point[0]), y = plots.best.map((point) => point[1]);
    if (x.length) { x.push(plots.results); y.push(y[y.length - 1]); }
    Plotly.react("best-plot", [{ x, y, type: "scatter", mode: "lines+markers", line: { shape: "hv", color: colour("blue"), width: 2 }, marker: { size: 5 },
      text: plots.best.map((point) => shownText(point[2])), hovertemplate: "%{y:.5g} after %{x} results<br>trial %{text}<extra></extra>" }],
    layout({ xaxis: { title: { text: "results" } }, yaxis: { title: { text: shownText(plots.metric) } } }), CONFIG);
  }
  function drawImportance() {
    const most = Math.max(...plots.importance.map((pair) => pair[1]), 0.01);
    const rows = plots.importance.map(([name, value]) => {
      const meter = element("span", { class: "meter" });
      meter.style.width = `${Math.max(1, (value / most) * 240)}px`;
      return element("tr", {}, element("td", { text: name }), element("td", { class: "num", text: value.toFixed(3) }), element("td", {}, meter));
    });
    byId("importance-rows").tBodies[0].replaceChildren(...(rows.length ? rows : [element("tr", {}, element("td", { class: "soft", text: "Four results are needed at least." }))]));
  }
  function drawSlices() {
    const place = byId("slice-plots");
    if (place.children.length !== plots.params.length) {
      place.replaceChildren(...plots.params.map((param) => element("div", { class: "curve" }, element("h3", { text: param.name }), element("div", { class: "plot" }))));
    }
    plots.params.forEach((param, number) => {
      const names = param.names;
      Plotly.react(place.children[number].querySelector(".plot"), [{ type: "scatter", mode: "markers",
        x: names ? param.values.map((value) => value + (Math.random() - 0.5) * 0.3) : param.values, y: plots.trials.map((trial) => trial[1]),
        text: plots.trials.map((trial) => shownText(trial[0])), marker: { size: 5, color: colour("blue"), opacity: 0.5 },
        hovertemplate: "%{text}<br>%{y:.5g}<extra></extra>" }],
      layout({ xaxis: names ? { tickvals: names.map((_, at) => at), ticktext: names.map(shownText) } : { type: param.log ? "log" : "linear" } }), CONFIG);
    });
  }
  function drawLearning() {
    const traces = plots.curves.map((curve) => ({ type: "scatter", mode: curve.x.length < 2 ? "markers" : "lines", x: curve.x, y: curve.y, name: shownText(curve.name), opacity: curve.is_best ? 1 : 0.45,
      line: { color: curve.is_best ? colour("green") : curve.status === "ERROR" ? colour("red") : curve.stopped ? colour("grey") : colour("blue"), width: curve.is_best ? 3 : 1.3, dash: curve.stopped ? "dot" : "solid" },
      hovertemplate: `${shownText(curve.name)}<br>%{y:.5g} at %{x}${curve.why ? `<br>${shownText(curve.why)}` : ""}<extra></extra>` }));
    const ends = (chosen, symbol, tone, text) => ({ type: "scatter", mode: "markers", name: text, marker: { symbol, size: 8, color: tone },
      x: chosen.map((curve) => curve.x[curve.x.length - 1]), y: chosen.map((curve) => curve.y[curve.y.length - 1]),
      text: chosen.map((curve) => shownText(`${curve.name}: ${curve.why}`)), hovertemplate: "%{text}<extra></extra>" });
    traces.push(ends(plots.curves.filter((curve) => curve.stopped), "line-ns-open", colour("orange"), "stopped by the scheduler"));
    traces.push(ends(plots.curves.filter((curve) => curve.status === "ERROR"), "x", colour("red"), "failed"));
    byId("learning-note").textContent = `${plots.curves.length} trials; a bar ends what the scheduler stopped, a cross what failed`;
    Plotly.react("learning-plot", traces, layout({ xaxis: { title: { text: "iteration" } }, yaxis: { title: { text: shownText(plots.metric) } } }), CONFIG);
  }
  function drawExploits() {
    if (!plots.exploits.length) { byId("exploits").hidden = true; return; }
    byId("exploits").hidden = false;
    const lists = new Map();  // a list of those that copied, below the trial that they copied
    const roots = element("ul", { class: "tree" });
    const listOf = (name) => {
      if (!lists.has(name)) {
        const inside = element("ul", { class: "tree" });
        roots.append(element("li", {}, element("strong", { text: name }), inside));
        lists.set(name, inside);
      }
      return lists.get(name);
    };
    for (const one of plots.exploits) {
      const inside = element("ul", { class: "tree" });
      const changes = one.changed.map(([name, before, after]) => `${name} ${before} → ${after}`).join(", ");
      listOf(one.donor).append(element("li", {}, element("strong", { text: one.trial }), ` at iteration ${one.iteration}`, element("span", { class: "soft small", text: changes ? `: ${changes}` : "" }), inside));
      lists.set(one.trial, inside);
    }
    byId("exploit-tree").replaceChildren(roots);
  }

  // Parallel coordinates, on a canvas: thousands of lines stay quick.

  const brushes = new Map();
  let drag = null;
  function geometry() {
    const canvas = byId("parallel-canvas"), axes = [...plots.params, { name: plots.metric, values: plots.trials.map((trial) => trial[1]), log: false }];
    const width = canvas.clientWidth, height = canvas.clientHeight, left = 50, right = 70, top = 34, bottom = 22;
    axes.forEach((axis, number) => {
      axis.x = axes.length < 2 ? left : left + (number / (axes.length - 1)) * (width - left - right);
      const low = Math.min(...axis.values), high = Math.max(...axis.values), scale = axis.log ? Math.log10 : (value) => value;
      axis.low = low; axis.high = high;
      axis.share = (value) => (high === low ? 0.5 : (scale(value) - scale(low)) / (scale(high) - scale(low)));
      axis.y = (value) => height - bottom - axis.share(value) * (height - top - bottom);
    });
    return { canvas, axes, width, height, top, bottom };
  }
  function drawParallel() {
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
    const count = plots.trials.length;
    plots.trials.forEach((_, at) => {
      const worth = count < 2 ? 1 : at / (count - 1);  // they come with the best last
      pen.strokeStyle = kept[at] ? mix(worth) : colour("line");
      pen.globalAlpha = kept[at] ? 0.25 + 0.6 * worth ** 3 : 0.15;
      pen.lineWidth = kept[at] && worth > 0.97 ? 2 : 1;
      pen.beginPath();
      axes.forEach((axis, number) => { const y = axis.y(axis.values[at]); if (number) pen.lineTo(axis.x, y); else pen.moveTo(axis.x, y); });
      pen.stroke();
    });
    pen.globalAlpha = 1;
    pen.font = "12px system-ui, sans-serif";
    axes.forEach((axis, number) => {
      pen.strokeStyle = colour("soft"); pen.lineWidth = 1;
      pen.beginPath(); pen.moveTo(axis.x, top); pen.lineTo(axis.x, height - bottom); pen.stroke();
      const brush = brushes.get(number);
      if (brush) { pen.fillStyle = colour("orange"); pen.globalAlpha = 0.5; pen.fillRect(axis.x - 5, brush[0], 10, brush[1] - brush[0]); pen.globalAlpha = 1; }
      pen.fillStyle = colour("text"); pen.textAlign = "center";
      pen.fillText(axis.name.slice(0, 22), axis.x, 14);
      pen.fillStyle = colour("soft"); pen.textAlign = "left";
      const ticks = axis.names ? axis.names.map((name, at) => [at, name]).slice(0, 12) : [axis.low, axis.high].map((value) => [value, Number(value.toPrecision(3)).toString()]);
      for (const [value, text] of ticks) pen.fillText(text.slice(0, 12), axis.x + 5, axis.y(value) + (axis.share(value) > 0.5 ? 11 : -3));
    });
    const left = kept.filter(Boolean).length;
    byId("parallel-note").textContent = `${left.toLocaleString()} of ${count.toLocaleString()} trials${plots.is_sample ? ", the best and a sample of the others" : ""}`;
  }
  function mix(worth) {  // from orange to blue, by which also the colour-blind tell good from bad
    const from = [230, 159, 0], to = [0, 114, 178];
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
  window.addEventListener("resize", drawParallel);
  document.addEventListener("recolour", draw);
  let nextPlots = 0;
  document.addEventListener("refreshed", () => {
    reload();
    if (Date.now() > nextPlots) { nextPlots = Date.now() + 3000; loadPlots().catch(failed); }
  });
  reload();
  loadPlots().catch(failed);
}
