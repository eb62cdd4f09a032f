// The page: reads forms, asks the core, puts its answers in place. It computes nothing that is shown.
//
// Out to worker.js: questions. In from there: answers as JSON with their HTML. Out to draw.js: chart specifications. In
// from there: drawings. The address holds the state (address.js); take.js hands things out.
import * as address from "./address.js";
import * as take from "./take.js";

const LOADING_PATIENCE_MS = 60_000;
const NUM_ARTISTS = 2; // charts of one answer are drawn side by side
const ANSWER_PATIENCE_MS = 15_000;
const ADDRESS_DELAY_MS = 300;
const NARROW_PX = 665; // as page.css has it
const SUBJECT = new Set(["model", "config", "on"]);

const page = JSON.parse(document.getElementById("page-data").textContent);
const status = document.getElementById("status");
const trouble = document.getElementById("trouble");
const tip = document.createElement("div");
const views = Object.keys(page.views);
const last = {}; // view → its last good answer
const waitingCharts = {}; // view → places that are not drawn yet
const asking = {}; // view → id of its newest question
const touched = new Set(); // fields that the reader has filled in
let shown = views[0];
let core = null;
let artists = null;
let isReady = false;
let file = null; // {path, names}: what was dropped
let questions = 0;
let watch = 0;
let addressTimer = 0;

const byId = (id) => document.getElementById(id);
const formOf = (view) => byId(`form-${view}`);
const answerOf = (view) => byId(`answer-${view}`);
const sectionOf = (view) => byId(`view-${view}`);
const isNarrow = (view) => answerOf(view).clientWidth <= NARROW_PX;
const controls = (form) => [...form.elements].filter((each) => each.name);

// ── trouble ──────────────────────────────────────────────────────────────────────────────────────

// What there is to say of a view, while it is the one that is shown.
function tell(view, said) {
  if (view === shown) status.textContent = said;
}

function complain(said, again = null) {
  trouble.textContent = said;
  if (again !== null) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Start again";
    button.onclick = again;
    trouble.append(" ", button);
  }
  trouble.hidden = false;
}

function calm() {
  trouble.hidden = true;
  trouble.textContent = "";
}

function markWrong(view, field, said) {
  const holder = formOf(view).querySelector(`[data-field="${CSS.escape(field)}"]`);
  if (holder === null) return false;
  holder.querySelector(".wrong").textContent = said;
  holder.querySelectorAll("input, textarea, select").forEach((each) => each.setAttribute("aria-invalid", "true"));
  holder.closest("details")?.setAttribute("open", "");
  return true;
}

function clearWrong(view) {
  formOf(view)
    .querySelectorAll(".wrong")
    .forEach((each) => each.textContent && (each.textContent = ""));
  formOf(view)
    .querySelectorAll("[aria-invalid]")
    .forEach((each) => each.removeAttribute("aria-invalid"));
}

// ── forms ────────────────────────────────────────────────────────────────────────────────────────

const valuesOf = (view) => Object.fromEntries(controls(formOf(view)).map((each) => [each.name, each.value]));

function fill(view, values) {
  for (const each of controls(formOf(view))) if (each.name in values) each.value = values[each.name];
  settle(view);
}

// What follows from what the form holds: fields that do not apply are hidden, sliders stand where their field does.
function settle(view) {
  const form = formOf(view);
  for (const holder of form.querySelectorAll("[data-when]")) {
    const [name, value] = holder.dataset.when.split("=");
    holder.hidden = form.elements[name].value.trim() !== value;
  }
  if (form.elements.model) form.elements.model.disabled = hasOwnModel(form);
  for (const slider of form.querySelectorAll("[data-moves]")) {
    const number = Number(form.elements[slider.dataset.moves].value);
    if (number >= 1) slider.value = Math.round(Math.log2(number));
  }
}

// A dropped file or a pasted config is asked about instead of the name, which then cannot be typed.
function hasOwnModel(form) {
  return (file !== null && form.querySelector('[data-field="file"]') !== null) || Boolean(form.elements.config?.value.trim());
}

// The same field of another view holds the same; one that begins otherwise there means something else.
function spread(view, control) {
  const defaultIn = (each) => page.views[each].defaults[control.name];
  for (const other of views) {
    if (other === view || defaultIn(other) !== defaultIn(view)) continue;
    const same = formOf(other).elements[control.name];
    if (same && same.value !== control.value) {
      same.value = control.value;
      settle(other);
    }
  }
}

function emptyExample() {
  for (const each of document.querySelectorAll("form [data-example]")) if (!touched.has(each.name)) each.value = "";
}

function changed(view, control) {
  touched.add(control.name);
  if (SUBJECT.has(control.name)) emptyExample();
  spread(view, control);
  settle(view);
  if (page.views[view].live && isReady) ask(view);
  else outdate(view);
}

function listen(view) {
  const form = formOf(view);
  form.addEventListener("input", ({ target }) => {
    if (target.type === "file") return;
    if (target.dataset.moves) {
      const moved = form.elements[target.dataset.moves];
      moved.value = String(2 ** Number(target.value));
      changed(view, moved);
      return;
    }
    if (target.name) changed(view, target);
  });
  form.addEventListener("change", ({ target }) => {
    if (target.type === "file" && target.files.length > 0) dropped([...target.files]);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask(view);
  });
  form.querySelector(".cancel")?.addEventListener("click", () => core?.postMessage({ kind: "cancel", view, id: asking[view] }));
  form.querySelector(".forget")?.addEventListener("click", forget);
}

// ── questions and answers ────────────────────────────────────────────────────────────────────────

function ask(view) {
  if (!isReady) return; // what was typed meanwhile is asked when Python is there
  const id = ++questions;
  asking[view] = id;
  const width = !page.views[view].live ? null : isNarrow(view) ? "narrow" : "wide";
  const request = { view, fields: valuesOf(view), width };
  if (file !== null && formOf(view).querySelector('[data-field="file"]')) request.file = file.path;
  sectionOf(view).dataset.asked = String(performance.now());
  core.postMessage({ kind: "ask", view, id, request });
  if (!page.views[view].live) busy(view, true);
  clearTimeout(watch);
  watch = setTimeout(() => complain("The core has not answered for a while.", restart), ANSWER_PATIENCE_MS);
}

// The answer that is shown is of another question than the form now asks.
function outdate(view) {
  answerOf(view).classList.add("stale");
  if (isReady) tell(view, `This answer is of earlier settings; press ${page.views[view].run} for the new one.`);
}

function busy(view, isBusy, progress = 0) {
  const form = formOf(view);
  for (const each of form.querySelectorAll(".cancel, progress")) each.hidden = !isBusy;
  const bar = form.querySelector("progress");
  if (bar) bar.value = progress;
}

function received(view, id, text) {
  clearTimeout(watch);
  if (id !== asking[view]) return;
  const step = JSON.parse(text);
  if ("progress" in step) {
    busy(view, true, step.progress);
    tell(view, step.said);
    watch = setTimeout(() => complain("The core has not answered for a while.", restart), ANSWER_PATIENCE_MS);
    return;
  }
  if (!step.is_partial) busy(view, false);
  calm();
  clearWrong(view);
  if (step.error) failed(view, step.error);
  else answered(view, step);
  sectionOf(view).dataset.answered = String(id);
}

function failed(view, { message, field }) {
  answerOf(view).classList.add("stale");
  const rest = last[view] ? " The last good answer stays below." : "";
  if (field === null || !markWrong(view, field, message)) complain(`${page.views[view].title}: ${message}.${rest}`);
  tell(view, `${message}.${rest}`);
}

function answered(view, step) {
  const holder = answerOf(view);
  const old = new Map([...holder.querySelectorAll("[data-chart]")].map((each) => [each.dataset.chart, [...each.childNodes]]));
  holder.classList.remove("stale");
  holder.innerHTML = step.html;
  for (const place of holder.querySelectorAll("[data-chart]")) {
    if (place.dataset.chart in step.charts) place.replaceChildren(...(old.get(place.dataset.chart) ?? []));
  }
  for (const figure of holder.querySelectorAll("figure")) if (!figure.querySelector("svg")) figure.dataset.empty = "";
  last[view] = step;
  makeSortable(view);
  offer(view, step);
  tell(view, step.status);
  if (view === shown) document.title = `${step.status} · inference-bench`;
  if (!page.views[view].live && isBelow(holder)) holder.scrollIntoView();
  waitingCharts[view] = new Set(Object.keys(step.charts));
  artists?.forEach((artist, index) => artist.postMessage({ view, id: asking[view], specs: shareOf(step.charts, index) }));
  if (Object.keys(step.charts).length === 0) sectionOf(view).dataset.drawn = String(asking[view]);
  remember(view);
}

const isBelow = (holder) => holder.getBoundingClientRect().top > innerHeight;

function drawn({ view, id, place, svg, said }) {
  if (id !== asking[view]) return;
  const holder = answerOf(view).querySelector(`[data-chart="${CSS.escape(place)}"]`);
  if (holder === null) return;
  if (said) holder.textContent = `This chart could not be drawn (${said}); its figures are in the tables.`;
  else holder.innerHTML = svg;
  const figure = holder.closest("figure");
  delete figure.dataset.empty;
  if (svg && !figure.querySelector(".chart-tools")) figure.querySelector("figcaption").append(chartTools());
  waitingCharts[view].delete(place);
  if (waitingCharts[view].size === 0) sectionOf(view).dataset.drawn = String(id);
}

const shareOf = (charts, index) =>
  Object.fromEntries(Object.entries(charts).filter((_, position) => position % NUM_ARTISTS === index));

// Heads that name an order ask for it; the sorting is the core's.
function makeSortable(view) {
  for (const head of answerOf(view).querySelectorAll("th[data-sort]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.dataset.order = head.dataset.sort;
    button.append(...head.childNodes);
    head.append(button);
    if (button.dataset.order === sortedBy) button.focus({ preventScroll: true });
  }
  sortedBy = null;
}

function sort(view, order) {
  const control = formOf(view).elements.order;
  control.value = order;
  sortedBy = order;
  changed(view, control);
}
let sortedBy = null; // the head that was pressed keeps the focus

// ── what can be taken along ──────────────────────────────────────────────────────────────────────

function chartTools() {
  const tools = document.createElement("span");
  tools.className = "chart-tools";
  for (const kind of ["svg", "png"]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = kind.toUpperCase();
    button.title = `Save this chart as ${kind.toUpperCase()}`;
    button.dataset.save = kind;
    tools.append(button);
  }
  return tools;
}

function offer(view, step) {
  const section = sectionOf(view);
  section.querySelectorAll("[data-take]").forEach((each) => (each.disabled = false));
  section.querySelector('[data-take="csv"]').hidden = !step.tables || Object.keys(step.tables).length === 0;
  const command = section.querySelector(".same code");
  if (command === null) return;
  const files = Object.entries(step.files ?? {}).map(([name, text]) => take.here(name, text));
  command.textContent = [...files, step.command].join("\n");
}

function taken(view, kind, button) {
  const step = last[view];
  if (kind === "link") {
    if (file !== null) status.textContent = "The link cannot carry a dropped file: whoever opens it drops the same file.";
    take.copy(new URL(addressOf(view), location.href).href, button);
  }
  if (kind === "command") take.copy(sectionOf(view).querySelector(".same code").textContent, button);
  if (kind === "json") take.copy(JSON.stringify(step.answer, null, 2), button);
  if (kind === "csv") take.save(`inference-bench-${view}.csv`, take.csv(step.tables), "text/csv");
}

function clicked({ target }) {
  const view = target.closest?.(".view")?.dataset.view;
  if (!view) return;
  const order = target.closest("[data-order]")?.dataset.order;
  if (order) sort(view, order);
  if (target.dataset.take) taken(view, target.dataset.take, target);
  if (target.dataset.save) {
    const figure = target.closest("figure");
    const drawing = [...figure.querySelectorAll("svg")].find((each) => each.clientWidth > 0);
    if (drawing) take.savePicture(drawing, `inference-bench-${view}`, target.dataset.save);
  }
}

// ── the address ──────────────────────────────────────────────────────────────────────────────────

function addressOf(view) {
  const values = valuesOf(view);
  if (values.config) values.config = address.shortened(values.config);
  if (hasOwnModel(formOf(view))) delete values.model;
  return address.write(view, formOf(view), page.views[view].defaults, values);
}

function remember(view) {
  clearTimeout(addressTimer);
  addressTimer = setTimeout(() => {
    if (view === shown && addressOf(view) !== location.hash) history.replaceState(null, "", addressOf(view));
  }, ADDRESS_DELAY_MS);
}

function show(view) {
  shown = view;
  for (const each of views) sectionOf(each).hidden = each !== view;
  for (const link of document.querySelectorAll("nav [data-view]")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  if (last[view]) tell(view, last[view].status);
}

// Follow the address: to a view as it stands, or to a question that it asks.
function follow(isFirst, runs = true) {
  const { view, said, isAsked } = address.read(location.hash);
  if (!isFirst && view && !views.includes(view)) return; // a place within the page
  const asked = views.includes(view) ? view : views[0];
  show(asked);
  if (isAsked && asked === view) {
    const values = address.complete(formOf(asked), page.views[asked].defaults, said);
    fill(asked, values);
    for (const each of controls(formOf(asked))) spread(asked, each);
    Object.keys(said).forEach((name) => touched.add(name));
  }
  if (!isFirst) scrollTo(0, 0);
  if (isFirst && isAsked) answerOf(asked).classList.add("stale");
  if (page.views[asked].live || (isAsked && runs)) ask(asked);
}

function linked(event) {
  const link = event.target.closest?.('a[href^="#"]');
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const { view, isAsked } = address.read(link.getAttribute("href"));
  if (!views.includes(view)) return;
  event.preventDefault();
  history.pushState(null, "", isAsked ? link.getAttribute("href") : addressOf(view));
  follow(false, isAsked);
}

// From the top of the page to the answer that is shown.
function skipped(event) {
  event.preventDefault();
  answerOf(shown).focus();
}

// ── files ────────────────────────────────────────────────────────────────────────────────────────

function dropped(files) {
  if (!isReady) {
    status.textContent = "Python is still loading; the file is read as soon as it is there.";
    waitingFiles = files;
    return;
  }
  file = { path: null, names: files.map((each) => each.name) };
  core.postMessage({ kind: "files", files });
}
let waitingFiles = null;

function mounted(path) {
  file.path = path;
  const names = file.names.length > 3 ? `${file.names.length} files` : file.names.join(", ");
  for (const each of document.querySelectorAll(".drop .file")) {
    each.hidden = false;
    each.closest("details")?.setAttribute("open", "");
    each.querySelector("output").textContent = names;
  }
  emptyExample();
  views.forEach(settle);
  if (!formOf(shown).querySelector('[data-field="file"]')) {
    history.pushState(null, "", addressOf(views[0]));
    show(views[0]);
  }
  if (page.views[shown].live) ask(shown);
}

function notMounted(said) {
  letGo();
  complain(`The dropped files could not be read (${said}); drop them again, one model at a time.`);
}

function letGo() {
  file = null;
  views.forEach(settle);
  for (const each of document.querySelectorAll(".drop .file")) each.hidden = true;
  for (const each of document.querySelectorAll('input[type="file"]')) each.value = "";
}

function forget() {
  letGo();
  if (page.views[shown].live) ask(shown);
}

// ── hover texts ──────────────────────────────────────────────────────────────────────────────────

function hovered({ target, clientX, clientY }) {
  const mark = target.closest?.(".drawing [aria-label]");
  const said = mark && mark.tagName !== "svg" ? mark.getAttribute("aria-label") : "";
  tip.hidden = !said;
  if (!said) return;
  tip.textContent = said;
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  tip.style.left = `${Math.max(8, Math.min(clientX + 12, room))}px`;
  tip.style.top = `${clientY + 16}px`;
}

// Another width has other drawings.
function resized() {
  const isDrawn = Object.keys(last[shown]?.charts ?? {}).every((place) => place.endsWith(isNarrow(shown) ? "narrow" : "wide"));
  if (!isDrawn && page.views[shown].live) ask(shown);
}

// ── start ────────────────────────────────────────────────────────────────────────────────────────

function startWorker(name, heard) {
  const worker = new Worker(new URL(name, import.meta.url), { type: "module" });
  worker.onmessage = ({ data }) => heard(data);
  worker.onerror = (event) => {
    event.preventDefault?.();
    blocked(event.message || "it was blocked, or is missing");
  };
  return worker;
}

function startArtist() {
  const worker = startWorker("draw.js", drawn);
  worker.onerror = () =>
    complain("Charts cannot be drawn here: what draws them was blocked, or is missing. Their figures are in the tables.");
  worker.postMessage({ kind: "palette", palette: page.palette });
  return worker;
}

function blocked(said) {
  clearTimeout(watch);
  isReady = false;
  complain(
    `What computes the answers could not be started (${said}). The last answer stays below. Reload the page, try another ` +
      "browser, or use the command line: pip install inference-bench.",
    restart,
  );
}

function broken(said) {
  clearTimeout(watch);
  isReady = false;
  complain(
    `What computes the answers broke down over this question (${said}); the last good answer stays. Change the question, then ` +
      "start again.",
    restart,
  );
}

function heard(data) {
  if (data.kind === "ready") ready(data.seconds);
  if (data.kind === "step") received(data.view, data.id, data.step);
  if (data.kind === "files") mounted(data.path);
  if (data.kind === "no files") notMounted(data.said);
  if (data.kind === "trouble") blocked(data.said);
  if (data.kind === "broken") broken(data.said);
  if (data.kind === "cancelled" && data.id === asking[data.view]) {
    clearTimeout(watch);
    busy(data.view, false);
    delete asking[data.view];
    tell(data.view, "Cancelled; the last answer stays.");
  }
}

function ready(seconds) {
  clearTimeout(watch);
  calm();
  isReady = true;
  artists ??= Array.from({ length: NUM_ARTISTS }, startArtist); // not before: it would take time from Python
  status.textContent = `Python is here, after ${seconds.toFixed(1)} s; from now on no network is needed.`;
  document.documentElement.dataset.ready = "";
  if (waitingFiles !== null) dropped(waitingFiles);
  waitingFiles = null;
  if (page.views[shown].live || address.read(location.hash).isAsked) ask(shown);
  keepForOffline();
}

function restart() {
  core?.terminate();
  isReady = false;
  letGo();
  calm();
  for (const view of views) busy(view, false);
  start();
}

function start() {
  status.textContent = "Loading Python; what you type meanwhile is kept.";
  watch = setTimeout(() => complain("Loading takes unusually long.", restart), LOADING_PATIENCE_MS);
  core = startWorker("worker.js", heard);
}

async function keepForOffline() {
  try {
    await navigator.serviceWorker?.register("sw.js");
  } catch {
    // not allowed here; the page works without
  }
}

function begin() {
  document.getElementById("asleep").remove();
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  for (const view of views) {
    listen(view);
    settle(view);
    makeSortable(view);
  }
  document.querySelector(".skip").addEventListener("click", skipped);
  document.addEventListener("click", linked);
  document.addEventListener("click", clicked);
  document.addEventListener("pointermove", hovered, { passive: true });
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    if (event.dataTransfer.files.length > 0) dropped([...event.dataTransfer.files]);
  });
  addEventListener("popstate", () => follow(false));
  addEventListener("resize", resized);
  if (typeof WebAssembly !== "object") {
    complain(
      "This browser has no WebAssembly, which the answers need. The answer below is right for what it says; for others use a " +
        "newer browser, or the command line: pip install inference-bench.",
    );
    for (const waiting of document.querySelectorAll(".answer > .quiet")) waiting.textContent = "This answer needs a newer browser.";
    follow(true);
    return;
  }
  try {
    start();
  } catch (error) {
    blocked(String(error?.message ?? error));
  }
  follow(true);
}

begin();
