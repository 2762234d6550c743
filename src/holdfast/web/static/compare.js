// Curves of several runs over each other. Each run has a colour and a dash, the same in every plot.
"use strict";

{
  const place = byId("compared");
  let data = null;
  function draw() {
    if (!data || !window.Plotly) return;
    if (place.children.length !== data.metrics.length) {
      place.replaceChildren(...data.metrics.map((metric) => element("div", { class: "curve" }, element("h3", { text: metric.name }), element("div", { class: "plot" }))));
    }
    data.metrics.forEach((metric, number) => {
      const traces = metric.runs.map((run) => ({ type: "scatter", mode: run.x.length < 60 ? "lines+markers" : "lines", marker: { size: 4 }, x: run.x, y: run.y,
        line: { color: PALETTE[run.run % PALETTE.length], dash: DASHES[run.run % DASHES.length], width: 2 },
        hovertemplate: `${shownText(data.names[run.run])}<br>%{y:.5g} at %{x}<extra></extra>` }));
      Plotly.react(place.children[number].querySelector(".plot"), traces, layout({ xaxis: counted(traces.flatMap((trace) => trace.x), { text: "report", standoff: 4 }), yaxis: { type: byId("log-scale").checked ? "log" : "linear" } }), CONFIG);
    });
  }
  async function load() {
    do {
      data = await getJson(place.dataset.compared);
      draw();
    } while (data.share < 1);
  }
  document.addEventListener("recolour", draw);
  byId("log-scale").addEventListener("change", draw);
  afterPaint(() => load().catch((error) => { byId("curve-note").textContent = error.message; }));
}
