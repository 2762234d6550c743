// The page of a search: a table that the server sorts and filters, and plots of a bounded number of trials.
"use strict";

{
  const table = { sort: "", down: false, from: 0, q: "", status: "", latest: 0, shown: 0, query: "" };
  const where = byId("trials").dataset.trials;  // empty in a report, which has all trials inside
  const STATUS = { TERMINATED: "done", ERROR: "failed", PENDING: "waiting" };
  const trialUrl = (directory) => `/run/${`${page.address}/${directory}`.split("/").map(encodeURIComponent).join("/")}`;

  const resultName = (found) => (found.mode ? `best ${found.metric}` : found.metric || "result");
  function heads(found) {
    const head = (text, sort, extra = "") => {
      const cell = element("th", { "data-sort": sort, class: extra, text: text.length > 32 ? `${text.slice(0, 31)}…` : text, title: text, tabindex: "0" });
      if (table.sort === sort) cell.setAttribute("aria-sort", table.down ? "descending" : "ascending");
      return cell;
    };
    byId("rows").tHead.rows[0].replaceChildren(
      element("th", { class: "pick" }), head("Trial", "name"), head("Status", "status"), head("Iterations", "iteration", "num"),
      head(resultName(found), "value", "num"), ...(found.mode ? [head(`last ${found.metric}`, "last", "num")] : []), ...found.params.map((name) => head(name, `param:${name}`)),
      head("Time", "seconds", "num"), element("th", { text: "Why" }));
  }
  function row(found, trial) {
    const address = `${page.address}/${trial.address}`;
    const link = where ? element("a", { href: trialUrl(trial.address) }, ...breakable(trial.name)) : element("span", {}, ...breakable(trial.name));
    const name = element("td", { class: trial.name.length > 32 ? "name" : "name short" }, link);
    if (trial.is_best) name.append(" ", element("span", { class: "tag", text: "★ best" }));
    const seconds = trial.seconds < 60 ? `${trial.seconds.toFixed(1)} s` : `${Math.floor(trial.seconds / 60)} m ${Math.floor(trial.seconds % 60)} s`;
    return element("tr", { tabindex: "-1", "data-address": address },
      element("td", { class: "pick" }, !where ? "" : element("input", { type: "checkbox", name: "pick", value: address, "aria-label": `Select ${trial.name}` })),
      name, element("td", {}, element("span", { class: `badge ${trial.cut ? "cut" : trial.status.toLowerCase()}`, text: trial.cut ? "stopped" : STATUS[trial.status] || trial.status.toLowerCase() })),
      element("td", { class: "num", "data-label": "iterations", text: trial.iteration.toLocaleString("en") }), element("td", { class: "num", "data-label": resultName(found), text: trial.value }),
      ...(found.mode ? [element("td", { class: "num soft", "data-label": "last", text: trial.last })] : []),
      ...trial.params.map((text, number) => element("td", { class: "small nowrap", "data-label": found.params[number], text: text.length > 32 ? `${text.slice(0, 31)}…` : text, title: text })),
      element("td", { class: "num small nowrap", "data-label": "time", text: seconds }), element("td", { class: "small break soft wide", text: trial.text }));
  }
  async function loadTrials() {
    const number = ++table.latest;
    const query = new URLSearchParams({ sort: table.sort, down: table.down ? "1" : "", from: table.from, q: table.q, status: table.status });
    table.query = String(query);
    const found = where ? await getJson(`${where}?${query}`) : reportTrials(query);
    if (number < table.shown || table.query !== String(query)) return;  // another page of the table was asked for
    table.shown = number;
    const picked = new Set(all("input[name=pick]:checked").map((box) => box.value));
    heads(found);
    byId("rows").tBodies[0].replaceChildren(...found.rows.map((trial) => row(found, trial)));
    for (const box of all("input[name=pick]")) box.checked = picked.has(box.value);
    const last = found.from + found.rows.length;
    byId("trial-count").textContent = found.total ? `${(found.from + 1).toLocaleString("en")} to ${last.toLocaleString("en")} of ${found.total.toLocaleString("en")}` : "No trial matches.";
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
    plots = where ? await getJson(byId("plots").dataset.plots) : report.plots;
    draw();
  }
  function draw() {
    if (!plots || !window.Plotly) return;
    drawBest(); drawParallel(plots); drawImportance(); drawSlices(); drawLearning(); drawExploits();
  }
  // A click on a trial opens it. Plotly keeps listeners when a plot is drawn again, so each plot gets one.
  function opens(place, trialAt) {
    if (!where || place.dataset.opens) return;
    place.dataset.opens = "1";
    place.on("plotly_click", (event) => { const directory = trialAt(event.points[0]); if (directory) location.href = trialUrl(directory); });
  }
  function fittedLayout(values, x, title, isLog = false) {
    const axis = fittedAxis(values, plots.mode, isLog);
    return layout({ ...axis, xaxis: counted(x, title), yaxis: { ...axis.yaxis, title: { text: shownText(plots.metric) }, type: isLog ? "log" : "linear" } });
  }
  function drawBest() {
    const x = plots.best.map((point) => point[0]), y = plots.best.map((point) => point[1]);
    if (x.length) { x.push(plots.results); y.push(y[y.length - 1]); }
    Plotly.react("best-plot", [{ x, y, type: "scatter", mode: "lines+markers", line: { shape: "hv", color: colour("blue"), width: 2 }, marker: { size: 5 },
      text: plots.best.map((point) => shownText(point[2])), hovertemplate: "%{y:.5g} after %{x} results<br>trial %{text}<extra></extra>" }],
    fittedLayout(y, x, { text: "results" }), CONFIG);
  }
  function drawImportance() {
    const most = Math.max(...plots.importance.map((pair) => pair[1]), 0.01);
    const rows = plots.importance.map(([name, value]) => {
      const meter = element("span", { class: "meter" });
      meter.style.width = `${Math.max(1, (value / most) * 100)}%`;
      return element("tr", {}, element("td", { text: name }), element("td", { class: "num", text: value.toFixed(3) }), element("td", { class: "meters" }, meter));
    });
    byId("importance-note").textContent = rows.length && plots.scored < 20 ? `from only ${plots.scored} results: a rough guess` : "";
    byId("importance-rows").tBodies[0].replaceChildren(...(rows.length ? rows : [element("tr", {}, element("td", { class: "soft", text: "At least four results are needed." }))]));
  }
  function drawSlices() {
    const place = byId("slice-plots");
    if (place.children.length !== plots.params.length) {
      place.replaceChildren(...plots.params.map((param) => element("div", { class: "curve" }, element("h3", { text: param.name }), element("div", { class: "plot" }))));
    }
    const axis = fittedAxis(plots.trials.map((trial) => trial[1]), plots.mode, false);
    plots.params.forEach((param, number) => {
      const names = param.names;
      Plotly.react(place.children[number].querySelector(".plot"), [{ type: "scatter", mode: "markers",
        x: names ? param.values.map((value) => value + (Math.random() - 0.5) * 0.3) : param.values, y: drawable(plots.trials.map((trial) => trial[1]), plots.mode),
        text: plots.trials.map((trial) => shownText(trial[0])), marker: { size: 5, color: colour("blue"), opacity: plots.trials.length < 300 ? 0.85 : 0.5 },
        hovertemplate: "%{text}<br>%{y:.5g}<extra></extra>" }],
      layout({ ...axis, xaxis: names ? { tickvals: names.map((_, at) => at), ticktext: names.map(shownText) } : { type: param.log ? "log" : "linear", exponentformat: "power" }, yaxis: { ...axis.yaxis, title: { text: shownText(plots.metric) } } }), CONFIG);
      opens(place.children[number].querySelector(".plot"), (point) => plots.trials[point.pointIndex][2]);
    });
  }
  function drawLearning() {
    const traces = plots.curves.map((curve) => ({ type: "scatter", mode: curve.x.length < 2 ? "markers" : "lines", x: curve.x, y: curve.y, name: shownText(curve.name), opacity: curve.is_best ? 1 : plots.curves.length < 16 ? 0.75 : 0.45,
      line: { color: curve.is_best ? colour("green") : curve.status === "ERROR" ? colour("red") : curve.stopped ? colour("grey") : colour("blue"), width: curve.is_best ? 3 : 1.3, dash: curve.stopped ? "dot" : "solid" },
      hovertemplate: `${shownText(curve.name)}<br>%{y:.5g} at %{x}${curve.why ? `<br>${shownText(curve.why)}` : ""}<extra></extra>` }));
    const values = plots.curves.flatMap((curve) => [curve.y[0], curve.y[curve.y.length - 1]]);  // each trial counts the same, however long it ran
    const ends = (chosen, symbol, tone, text) => ({ type: "scatter", mode: "markers", name: text, marker: { symbol, size: 8, color: tone },
      x: chosen.map((curve) => curve.x[curve.x.length - 1]), y: drawable(chosen.map((curve) => curve.y[curve.y.length - 1]), plots.mode, values),
      text: chosen.map((curve) => shownText(`${curve.name}: ${curve.why}`)), hovertemplate: "%{text}<extra></extra>" });
    traces.push(ends(plots.curves.filter((curve) => curve.stopped), "line-ns-open", colour("orange"), "stopped by the scheduler"));
    traces.push(ends(plots.curves.filter((curve) => curve.status === "ERROR"), "x", colour("red"), "failed"));
    const copies = plots.exploits.map((one) => [one, plots.curves.find((curve) => curve.name === one.trial)]).filter(([one, curve]) => curve && curve.x.includes(one.continued));
    traces.push({ type: "scatter", mode: "markers", name: "copied another trial", marker: { symbol: "diamond", size: 8, color: colour("purple") },
      x: copies.map(([one]) => one.continued), y: copies.map(([one, curve]) => curve.y[curve.x.indexOf(one.continued)]),
      text: copies.map(([one]) => shownText(`${one.trial} copies ${one.donor}`)), hovertemplate: "%{text}<extra></extra>" });
    for (const [key, occurs] of Object.entries({ best: plots.curves.some((curve) => curve.is_best), cut: plots.curves.some((curve) => curve.stopped),
      failed: plots.curves.some((curve) => curve.status === "ERROR"), copied: copies.length })) byId(`${key}-key`).hidden = !occurs;
    byId("learning-note").textContent = plots.curves.length < plots.scored ? `${plots.curves.length} of ${plots.scored.toLocaleString("en")} trials: the best, stopped ones and a sample of the others` : "";
    byId("stop-rows").hidden = !plots.stops.length;
    byId("stop-rows").tBodies[0].replaceChildren(...plots.stops.map((stop) => element("tr", {}, element("td", { class: "nowrap", text: `at iteration ${stop.iteration.toLocaleString("en")}` }),
      element("td", { class: "num", text: stop.count.toLocaleString("en") }), element("td", { class: "soft break", text: stop.why }))));
    Plotly.react("learning-plot", traces, fittedLayout(values, plots.curves.flatMap((curve) => curve.x), { text: "iteration" }, byId("log-scale").checked), CONFIG);
    opens(byId("learning-plot"), (point) => (plots.curves[point.curveNumber] || {}).address);
  }
  function drawExploits() {
    byId("exploits").hidden = byId("exploits-link").hidden = !plots.exploits.length;
    if (!plots.exploits.length) return;
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

  document.addEventListener("recolour", draw);
  byId("log-scale").addEventListener("change", draw);
  let nextPlots = 0;
  document.addEventListener("refreshed", () => {
    reload();
    if (Date.now() > nextPlots) { nextPlots = Date.now() + 3000; loadPlots().catch(failed); }
  });
  const begin = () => { reload(); loadPlots().catch(failed); };
  if (where) afterPaint(begin); else begin();
}
