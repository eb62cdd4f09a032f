// Draws charts as SVG text, off the page's own thread, from the specifications that Python wrote.
//
// In:   {kind: "palette", palette}, then {view, id, specs: {place: specification}}
// Out:  {view, id, place, svg} for each place, or {view, id, place, said} where one could not be drawn
//
// No code is made from text here: expressions are interpreted, as the page's policy asks. Colours become the page's own
// variables, so that a drawing follows the theme.
import "./vega/vega.min.js";
import "./vega/vega-lite.min.js";
import { expressionInterpreter } from "./vega/vega-interpreter.js";

const { vega, vegaLite } = globalThis;
const quiet = { level: () => quiet, error: () => quiet, warn: () => quiet, info: () => quiet, debug: () => quiet };
const WARM_UP_ROUNDS = 6;
const waiting = new Map(); // view → the newest drawings asked for
let variables = new Map(); // light colour → CSS variable
let isWorking = false;
let drawings = 0;
let first; // the first specifications, until they have warmed what draws; null after that

const escaped = (text) =>
  text.replace(/[&<>"]/g, (char) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[char]);

// The drawing made fit for the page: named, in its colours, its ids its own, as wide as its place.
function prepared(svg, label) {
  const prefix = `d${++drawings}-`;
  return svg
    .replace(/\s(?:font-family|role|aria-roledescription)="[^"]*"/g, "")
    .replace(/\s(aria-label="[^"]*")/g, ' role="img" $1') // a name needs a role that may have one
    .replace(/<svg\b[^>]*>/, (tag) => {
      const viewBox = /viewBox="[^"]*"/.exec(tag)?.[0] ?? "";
      return `<svg xmlns="http://www.w3.org/2000/svg" ${viewBox} role="img" aria-label="${escaped(label)}">`;
    })
    .replace(/\sid="([^"]+)"/g, ` id="${prefix}$1"`)
    .replace(/url\(#([^)]+)\)/g, `url(#${prefix}$1)`)
    .replace(/(fill|stroke)="(#[0-9a-f]{6})"/g, (all, name, colour) =>
      variables.has(colour) ? `${name}="${variables.get(colour)}"` : all,
    );
}

// A turn of the event loop without the delay that timers have.
const { port1, port2 } = new MessageChannel();
const breathe = () =>
  new Promise((resolve) => {
    port1.onmessage = resolve;
    port2.postMessage(null);
  });

async function draw(spec) {
  const compiled = vegaLite.compile(spec, { logger: quiet }).spec;
  const view = new vega.View(vega.parse(compiled, null, { ast: true }), {
    expr: expressionInterpreter,
    renderer: "none",
    logger: quiet,
  });
  const svg = await view.toSVG();
  view.finalize();
  return prepared(svg, spec.description ?? "chart");
}

async function work() {
  if (isWorking) return;
  isWorking = true;
  while (waiting.size > 0) {
    const [[view, { id, specs }]] = waiting;
    waiting.delete(view);
    first = first === undefined ? specs : first;
    for (const [place, spec] of Object.entries(specs)) {
      if (waiting.has(view)) break;
      try {
        postMessage({ view, id, place, svg: await draw(spec) });
      } catch (error) {
        postMessage({ view, id, place, said: String(error?.message ?? error) });
      }
      await breathe();
    }
  }
  isWorking = false;
  if (first) warmUp(first);
}

// What has been run a few times runs faster: the first charts are drawn again, to nowhere, while nothing else is asked for.
async function warmUp(specs) {
  first = null;
  for (let round = 0; round < WARM_UP_ROUNDS; round += 1) {
    for (const spec of Object.values(specs)) {
      await new Promise((resolve) => setTimeout(resolve, 5));
      if (waiting.size > 0 || isWorking) return;
      await draw(spec).catch(() => undefined);
    }
  }
}

onmessage = ({ data }) => {
  if (data.kind === "palette") {
    variables = new Map(Object.entries(data.palette).map(([role, [light]]) => [light, `var(--${role}, ${light})`]));
    return;
  }
  waiting.set(data.view, data);
  work();
};
