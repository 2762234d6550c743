// Everything that comes from a run is set as text (textContent), never as HTML.
"use strict";

const page = document.body.dataset;

async function getJson(url, options) {
  const answer = await fetch(url, { credentials: "same-origin", ...options });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error || `The server answered ${answer.status}.`);
  return body;
}

// Work that the first paint need not wait for.
function afterPaint(work) {
  let done = false;
  const once = () => { if (!done) { done = true; work(); } };
  requestAnimationFrame(() => setTimeout(once));
  setTimeout(once, 500);  // a tab in the background is not painted
}

// Colours

const THEMES = ["", "light", "dark"];
function nextTheme() {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme || "") + 1) % THEMES.length];
  if (next) root.dataset.theme = next; else delete root.dataset.theme;
  localStorage.setItem("holdfast-theme", next);
  document.dispatchEvent(new Event("recolour"));
}
byId("theme-button").addEventListener("click", nextTheme);
let showsPlots;
const plotlyLoaded = new Promise((resolve) => { showsPlots = resolve; });
async function loadCurves() {
  const place = byId("curves");
  if (!place || !place.dataset.curves || curves.busy) return;
  curves.busy = true;
  let drawn = -Infinity;
  try {
    do {
      curves.data = await getJson(place.dataset.curves + (drawn > 0 ? "?more=1" : ""));
      if (curves.data.share === 1 || performance.now() > drawn + 2000) { drawCurves(); drawn = performance.now(); }
      if (curves.data.share < 1) await plotlyLoaded;  // the sample is shown before the rest is read
      const share = curves.data.share;
      byId("curve-note").textContent = share < 1 ? `a sample while reports are read: ${Math.floor(share * 100)} %` : "";
    } while (curves.data.share < 1);
  } catch (error) {
    byId("curve-note").textContent = error.message;
  }
  curves.busy = false;
}

// Live: the server says that something has changed; the parts of the page that it is about are fetched again.

async function refresh() {
  const url = new URL(location.href);
  url.searchParams.set("whole", "1");  // with what takes long to read, too
  const answer = await fetch(url, { credentials: "same-origin" });
  if (!answer.ok) return;
  const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (fresh.getElementById("stacks") && !byId("stacks")) { location.replace(url); return; }  // the first hang
  for (const old of all("[data-live]")) {
    const next = fresh.getElementById(old.id);
    if (!next || next.innerHTML === old.dataset.source) continue;
    const open = all("details[id]", old).map((one) => [one.id, one.open]);
    const loose = all("details:not([id])", old).map((one) => one.open);
    const picked = all("input[name=pick]:checked", old).map((one) => one.value);
    const focus = old.contains(document.activeElement) && document.activeElement.closest("[data-address]");
    const mark = old.contains(document.activeElement) && document.activeElement.closest(MARK);
    const markAt = mark && [all(".tl-lane", old).indexOf(mark.parentElement), all("[tabindex]", mark.parentElement).indexOf(mark)];
    const source = next.innerHTML;
    old.replaceChildren(...next.childNodes);
    old.dataset.source = source;
    for (const [id, is] of open) { const one = byId(id); if (one) one.open = is; }
    all("details:not([id])", old).forEach((one, number) => { if (number in loose) one.open = loose[number]; });
    for (const value of picked) { const one = all("input[name=pick]", old).find((box) => box.value === value); if (one) one.checked = true; }
    if (markAt) { const lane = all(".tl-lane", old)[markAt[0]], next = lane && all("[tabindex]", lane)[markAt[1]]; if (next) next.focus(); }
    if (focus) { const row = all("[data-address]", old).find((one) => one.dataset.address === focus.dataset.address); if (row) row.focus(); }
  }
  for (const id of ["log-attempt", "log-rank"]) {
    const field = byId(id), next = fresh.getElementById(id);
    if (field && next) { field.max = next.max; if (next.dataset.newest) field.dataset.newest = next.dataset.newest; }
  }
  if (page.reading) { byId("log-follow").checked = fresh.getElementById("log-follow").checked; delete page.reading; }
  if (byId("logs")) followAttempts();
  if (!document.activeElement.closest(MARK)) tellHint();
  document.dispatchEvent(new Event("refreshed"));
}

// A look rests four times as long as it took (5 s at most), and a tab that nobody sees waits.
let resting = false, again = false;
function refreshSoon() {
  if (resting || document.hidden) { again = true; return; }
  resting = true;
  const began = performance.now();
  Promise.all([refresh(), loadCurves()]).catch(() => {}).finally(() => {
    setTimeout(() => { resting = false; if (again) { again = false; refreshSoon(); } }, Math.min(5000, Math.max(500, 4 * (performance.now() - began))));
  });
}
document.addEventListener("visibilitychange", () => { if (!document.hidden && again) { again = false; refreshSoon(); } });
// A browser allows few connections to one server: only a tab that is seen keeps one.
let source = null, known = page.version;  // what the page shows
const watch = () => {
  const live = byId("live");
  if (source || document.hidden) return;
  source = new EventSource(page.events);
  source.addEventListener("changed", (event) => {
    const state = JSON.parse(event.data), isBack = live.classList.contains("lost");  // what failed meanwhile is tried again
    live.hidden = false;
    live.classList.remove("lost");
    live.lastChild.textContent = state.error ? "storage is unavailable" : "live";
    if (state.error) live.classList.add("lost");
    if (!state.error && (isBack || known !== state.version)) {
      known = state.version;
      refreshSoon();
    }
  });
  source.addEventListener("error", () => { live.hidden = false; live.classList.add("lost"); live.lastChild.textContent = "disconnected"; });
};
if (page.events) {
  afterPaint(watch);
  if (page.reading) afterPaint(refreshSoon);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden) watch();
    else if (source) { source.close(); source = null; }
  });
}

// Times, as they pass

const UNITS = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
function ago(seconds) {
  if (seconds < 1) return "just now";
  if (seconds >= 172800) return `${Math.round(seconds / 86400)} days ago`;
  const at = UNITS.findIndex(([size]) => seconds >= size), [size, name] = UNITS[at];
  const rest = at < 3 ? Math.floor((seconds % size) / UNITS[at + 1][0]) : 0;
  return `${Math.floor(seconds / size)} ${name}${rest ? ` ${String(rest).padStart(2, "0")} ${UNITS[at + 1][1]}` : ""} ago`;
}
setInterval(() => {
  for (const one of all("time[data-ago]")) if (one.dataset.ago && !document.hidden) one.textContent = ago(Date.now() / 1000 - Number(one.dataset.ago));
}, 5000);

// Tables of rows: filter, sort, keyboard

const filters = { text: "", states: new Set(), sort: null, down: false };
function filterRows() {
  const table = byId("rows");
  if (!table) return;
  const words = filters.text.toLowerCase().split(/\s+/).filter(Boolean);
  let visible = 0;
  for (const row of all("tbody tr", table)) {
    const text = row.textContent.toLowerCase();
    const states = filters.states;
    const fits = !states.size || states.has(row.dataset.state) || (states.has("trouble") && row.dataset.trouble);
    row.hidden = !(fits && words.every((word) => text.includes(word)));
    visible += !row.hidden;
  }
  if (byId("none")) byId("none").hidden = visible > 0;
  if (filters.sort) {
    const number = (text) => (text !== undefined && text !== "" && !Number.isNaN(Number(text)) ? Number(text) : null);
    const rows = all("tbody tr", table).sort((a, b) => {
      const [x, y] = [a.dataset[filters.sort] || "", b.dataset[filters.sort] || ""];
      if (!x || !y) return Number(!x) - Number(!y);  // what is not known comes last, in both orders
      const parts = y.split("\t");
      const order = x.split("\t").reduce((found, part, at) => found || (number(part) !== null && number(parts[at]) !== null ? number(part) - number(parts[at]) : part.localeCompare(parts[at] || "")), 0);
      return filters.down ? -order : order;
    });
    table.tBodies[0].append(...rows);
    for (const head of all("th[data-sort]", table)) {
      if (head.dataset.sort === filters.sort) head.setAttribute("aria-sort", filters.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }
  countPicked();
}
function countPicked() {
  const button = byId("compare");
  if (!button) return;
  const count = all("input[name=pick]:checked").length;
  button.disabled = count < 2 || count > 8;
  button.classList.toggle("primary", count >= 2);
  button.textContent = count ? `Compare ${count}` : "Compare";
}
if (page.page === "runs") {
  if (byId("filter")) byId("filter").addEventListener("input", (event) => { filters.text = event.target.value; filterRows(); });
  const press = () => { for (const chip of all(".chip")) chip.setAttribute("aria-pressed", String(filters.states.has(chip.dataset.state))); };
  document.addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    if (!chip) return;
    if (!filters.states.delete(chip.dataset.state)) filters.states.add(chip.dataset.state);
    press();
    filterRows();
  });
  const sortBy = (event) => {
    const head = event.target.closest("th[data-sort]");
    if (!head || (event.type === "keydown" && event.key !== "Enter")) return;
    filters.down = filters.sort === head.dataset.sort ? !filters.down : !["name", "metrics", "driver"].includes(head.dataset.sort);
    filters.sort = head.dataset.sort;
    filterRows();
  };
  document.addEventListener("click", sortBy);
  document.addEventListener("keydown", sortBy);
  document.addEventListener("refreshed", () => { press(); filterRows(); });
}
document.addEventListener("change", (event) => { if (event.target.name === "pick") countPicked(); });
if (byId("compare")) byId("compare").addEventListener("click", () => {
  const picked = all("input[name=pick]:checked").map((box) => `run=${encodeURIComponent(box.value)}`);
  location.href = `/compare?${picked.join("&")}`;
});

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const rows = all("#rows tbody tr").filter((row) => !row.hidden);
  const at = rows.indexOf(document.activeElement.closest("tr"));
  const keys = {
    "/": () => (byId("filter") || byId("log-search") || document.body).focus(),
    "?": () => byId("help").showModal(),
    t: nextTheme,
    g: () => { location.href = "/"; },
    j: () => rows.length && rows[Math.min(at + 1, rows.length - 1)].focus(),
    k: () => rows.length && rows[Math.max(at - 1, 0)].focus(),
    Enter: () => { const link = at >= 0 && document.activeElement.tagName === "TR" && rows[at].querySelector("a"); if (link) link.click(); else return true; },
    x: () => { const box = at >= 0 && rows[at].querySelector("input[name=pick]"); if (box) { box.checked = !box.checked; countPicked(); } },
  };
  if (keys[event.key] && keys[event.key]() !== true) event.preventDefault();
});
byId("help-button").addEventListener("click", () => byId("help").showModal());

// Actions

document.addEventListener("submit", (event) => {
  const question = event.target.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
});
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-verify]");
  if (!button) return;
  button.disabled = true;
  button.textContent = "Verifying…";
  try {
    const body = new URLSearchParams({ token: page.token, id: button.dataset.verify });
    const url = `/verify/${page.address.split("/").map(encodeURIComponent).join("/")}`;
    const found = await getJson(url, { method: "POST", body });
    button.textContent = found.ok ? "✓ intact" : "✕ damaged";
    button.title = found.text;
  } catch (error) {
    button.textContent = "Verify";
    button.title = error.message;
    button.disabled = false;
  }
});

// Logs

const logs = { attempt: 0, rank: 0, next: 0, timer: null, isNewest: true };
const LOG_LINES = 5000;
function showLines(lines, replace) {
  const place = byId("log");
  const end = place.scrollTop + place.clientHeight >= place.scrollHeight - 30;
  if (replace) place.replaceChildren();
  for (const line of lines) place.append(line, "\n");
  while (place.childNodes.length > 2 * LOG_LINES) place.firstChild.remove();
  if (replace || end) place.scrollTop = place.scrollHeight;
}
const logUrl = (extra = "") => `${byId("logs").dataset.logs}?attempt=${logs.attempt}&rank=${logs.rank}${extra}`;
async function openLog(attempt, rank) {
  Object.assign(logs, { attempt, rank, isNewest: attempt === newestAttempt() });
  byId("log-attempt").value = attempt;
  byId("log-rank").value = rank;
  byId("log-search").value = "";
  const found = await getJson(logUrl());
  if (logs.attempt !== attempt || logs.rank !== rank) return;  // another one was chosen meanwhile
  logs.next = found.next;
  byId("log-note").textContent = found.lines.length ? (found.is_all ? "" : "The last 1,000 lines. Search looks through the whole log.") : `No output of rank ${rank} in attempt ${attempt}.`;
  showLines(found.lines, true);
}
// Who follows a rank in the newest attempt follows it into the next one, as soon as it has a log there.
const newestAttempt = () => Number(byId("log-attempt").dataset.newest);
function followAttempts() {
  const next = newestAttempt();
  if (!logs.isNewest || next === logs.attempt || byId("log-search").value || (logs.attempt && !byId("log-follow").checked)) return;
  openLog(next, logs.rank).catch(() => {});
}
async function searchLog(text) {
  if (!text) return openLog(logs.attempt, logs.rank);
  const found = await getJson(logUrl(`&q=${encodeURIComponent(text)}`));
  byId("log-note").textContent = `${found.matches.length}${found.is_all ? "" : " or more"} line${found.is_all && found.matches.length === 1 ? "" : "s"} with “${text}”`;
  byId("log").replaceChildren();
  for (const [number, line] of found.matches) {
    const at = line.toLowerCase().indexOf(text.toLowerCase());
    byId("log").append(`${String(number).padStart(6)}  `);
    if (at < 0) byId("log").append(line, "\n");
    else byId("log").append(line.slice(0, at), element("mark", { text: line.slice(at, at + text.length) }), line.slice(at + text.length), "\n");
  }
}
async function followLog() {
  if (logs.attempt && byId("log-follow").checked && !byId("log-search").value && !document.hidden) {
    try {
      const found = await getJson(logUrl(`&from=${logs.next}`));
      logs.next = found.next;
      showLines(found.lines, false);
    } catch { /* the next look may work */ }
  }
  logs.timer = setTimeout(followLog, 1500);
}
if (byId("logs")) {
  const failed = (error) => { byId("log-note").textContent = error.message; };
  for (const id of ["log-attempt", "log-rank"]) byId(id).addEventListener("change", () => {
    const [attempt, rank] = [byId("log-attempt"), byId("log-rank")];
    if (attempt.reportValidity() && rank.reportValidity() && attempt.value && rank.value) openLog(Number(attempt.value), Number(rank.value)).catch(failed);
  });
  byId("log-search").addEventListener("change", (event) => logs.attempt && searchLog(event.target.value).catch(failed));
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-log]");
    if (link) openLog(...link.dataset.log.split("/").map(Number)).catch(failed);
  });
  afterPaint(() => {
    if (newestAttempt()) openLog(newestAttempt(), 0).catch(failed);
    else if (!page.reading) byId("log-note").textContent = "No attempt has begun.";
    followLog();
  });
}

// Stacks of a hang

if (byId("stacks")) {
  const buttons = all("#stacks button[data-attempt]");
  const spans = (ranks) => {  // 0-2, 5
    const found = [];
    for (const rank of ranks) { const last = found[found.length - 1]; if (last && last[1] === rank - 1) last[1] = rank; else found.push([rank, rank]); }
    return found.map(([from, to]) => (from === to ? from : `${from}–${to}`)).join(", ");
  };
  const show = async (button) => {
    const found = await getJson(`${byId("stacks").dataset.stacks}?attempt=${button.dataset.attempt}`);
    for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
    const cause = Number(button.dataset.rank);
    byId("stack-columns").replaceChildren(...found.columns.map(({ ranks, text }) => {
      const head = element("h3", { text: `rank${ranks.length > 1 ? "s" : ""} ${spans(ranks)}` });
      if (ranks.includes(cause)) head.append(" ", element("span", { class: "tag bad", text: `rank ${cause} seems to hang` }));
      return element("div", {}, head, element("pre", { class: "log", text }));
    }));
  };
  for (const button of buttons) button.addEventListener("click", () => show(button));
  afterPaint(() => show(buttons[buttons.length - 1]));
}

// Plotly is large: the page is painted before it is loaded.
if (page.plotly) afterPaint(() => {
  const script = element("script", { src: `/static/plotly.min.js?${page.assets}`, id: "plotly" });
  script.addEventListener("load", () => { document.dispatchEvent(new Event("recolour")); showsPlots(); });
  document.head.append(script);
});
afterPaint(loadCurves);
