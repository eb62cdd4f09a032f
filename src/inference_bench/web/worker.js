// Runs the Python core, off the page's own thread. It knows no figure and no formula.
//
// In:   {kind: "ask", view, id, request}, {kind: "cancel", view, id}, {kind: "files", files}
// Out:  {kind: "ready", seconds}, {kind: "step", view, id, step (JSON text)}, {kind: "cancelled", view, id},
//       {kind: "files", path} or {kind: "no files", said}, {kind: "trouble", said} where it cannot start, and
//       {kind: "broken", said} where it cannot go on
//
// A newer question of a view takes the place of an older one. Long answers come in steps; between two of them other
// questions are answered, so nothing typed waits for a simulation.
import { loadPyodide } from "./pyodide/pyodide.mjs";

const PATIENCE_MS = 250; // what follows an answer that is complete but for extras begins when nobody types

const asked = new Map(); // view → the newest question, not begun
const running = new Map(); // view → {id, steps, notBefore}
let python = null;
let bridge = null;
let isWorking = false;
let folders = 0;

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

// A turn of the event loop without the delay that timers have.
const { port1, port2 } = new MessageChannel();
const breathe = () =>
  new Promise((resolve) => {
    port1.onmessage = resolve;
    port2.postMessage(null);
  });

async function load() {
  const began = performance.now();
  const core = fetch(new URL("core.zip", import.meta.url)).then((reply) => {
    if (!reply.ok) throw new Error(`core.zip: ${reply.status}`);
    return reply.arrayBuffer();
  });
  python = await loadPyodide({ indexURL: new URL("./pyodide/", import.meta.url).href });
  python.unpackArchive(await core, "zip", { extractDir: "/core" });
  python.runPython("import sys; sys.path.insert(0, '/core')");
  bridge = python.pyimport("inference_bench.bridge");
  postMessage({ kind: "ready", seconds: (performance.now() - began) / 1000 });
  work();
}

function begin({ id, request }) {
  return { id, steps: bridge.Steps(JSON.stringify(request)), notBefore: 0 };
}

function end(view) {
  running.get(view)?.steps.destroy();
  running.delete(view);
}

function step(view) {
  const job = running.get(view);
  const text = job.steps.next();
  if (text === undefined) {
    end(view);
    return;
  }
  postMessage({ kind: "step", view, id: job.id, step: text });
  if (text.includes('"is_partial": true')) job.notBefore = performance.now() + PATIENCE_MS;
}

async function work() {
  if (isWorking || bridge === null) return;
  isWorking = true;
  try {
    while (asked.size > 0 || running.size > 0) await turn();
    isWorking = false;
  } catch (error) {
    postMessage({ kind: "broken", said: lastLine(error) }); // Python itself fell over: nothing more comes
  }
}

async function turn() {
  for (const [view, question] of asked) {
    asked.delete(view);
    end(view);
    running.set(view, begin(question));
  }
  const due = [...running].filter(([, job]) => job.notBefore <= performance.now()).map(([view]) => view);
  due.forEach(step);
  await (due.length > 0 ? breathe() : pause(20));
}

// Files are mounted, not copied: their bytes are read when Python asks for them, and only those it asks for. Several are one
// model, in a folder that gives it its name.
function mount(files) {
  const isOne = files.length === 1;
  const folder = `/dropped/${++folders}/${isOne ? "" : "dropped-model"}`;
  python.FS.mkdirTree(folder);
  python.FS.mount(python.FS.filesystems.WORKERFS, { files }, folder);
  postMessage({ kind: "files", path: isOne ? `${folder}${files[0].name}` : folder });
}

function unmounted(error) {
  postMessage({ kind: "no files", said: String(error?.message ?? error) });
}

onmessage = ({ data }) => {
  if (data.kind === "ask") asked.set(data.view, data);
  if (data.kind === "cancel") {
    const isThere = asked.delete(data.view) || running.has(data.view);
    end(data.view);
    if (isThere) postMessage({ kind: "cancelled", view: data.view, id: data.id }); // else its answer is on the way
  }
  if (data.kind === "files") loaded.then(() => mount(data.files)).catch(unmounted);
  work();
};

// The last line of what went wrong: of Python's own reports it is the one that says it.
const lastLine = (error) => String(error?.message ?? error).trim().split("\n").at(-1).slice(0, 160);
const troubled = (error) => postMessage({ kind: "trouble", said: lastLine(error) });
const loaded = load().catch(troubled);
// A part of Python that cannot be fetched, or not be compiled, is complained of beside the promise that waits for it: as a
// rejection nobody took up, or, when its loader took it up in time, as no more than a warning that carries the error.
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  if (bridge === null) troubled(event.reason);
});
const warn = console.warn;
console.warn = (...said) => {
  warn(...said);
  if (bridge === null && said[0] instanceof Error) troubled(said[0]);
};
