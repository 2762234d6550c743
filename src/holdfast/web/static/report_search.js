// The trials of a report are all inside: it sorts, filters and pages them by itself.
"use strict";

const page = {}, countPicked = () => {};  // there is no server to ask, and nothing to compare
const report = JSON.parse(byId("data").textContent);
function reportTrials(query) {
  const { rows, params, size } = report.trials, sort = query.get("sort"), words = query.get("q").toLowerCase().split(/\s+/).filter(Boolean);
  const text = (row) => [row.name, row.status, row.text, ...row.params.map((value, at) => `${params[at]}=${value}`)].join(" ").toLowerCase();
  const key = (row) => (sort === "value" ? row.number : sort === "last" ? row.lastNumber : sort.startsWith("param:") ? row.values[params.indexOf(sort.slice(6))] : row[sort]);
  const found = rows.filter((row) => (!query.get("status") || row.status === query.get("status")) && words.every((word) => text(row).includes(word)));
  if (sort) {
    const down = query.get("down") ? -1 : 1, missing = (value) => value === null || value === undefined;
    found.sort((a, b) => {
      const [x, y] = [key(a), key(b)];
      if (missing(x) || missing(y)) return missing(x) - missing(y);
      return down * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
    });
  }
  const from = Number(query.get("from"));
  return { ...report.trials, total: found.length, from, rows: found.slice(from, from + size) };
}
