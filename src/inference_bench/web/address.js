// The state of a view in the address, after the #, where no server sees it: #fit?model=Qwen3-8B&context=32k
//
// A field is in the address when it holds something else than it would without it. The example's own settings belong to
// the example: with another model or machine they are empty unless the address says so.

const SUBJECT = ["model", "config", "on"];
export const MAX_CONFIG_CHARS = 8000; // longer addresses are cut by some programs

const isExample = (form, name) => form.elements[name]?.hasAttribute?.("data-example") ?? false;

function defaultOf(form, defaults, values, name) {
  const isOther = SUBJECT.some((each) => each in defaults && (values[each] ?? defaults[each]) !== defaults[each]);
  return isOther && isExample(form, name) ? "" : defaults[name];
}

export function write(view, form, defaults, values) {
  const said = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value === defaultOf(form, defaults, values, name)) continue;
    if (name === "config" && value.length > MAX_CONFIG_CHARS) continue;
    said.set(name, value);
  }
  const query = said.toString();
  return query ? `#${view}?${query}` : `#${view}`;
}

export function read(hash) {
  const [, view, query] = /^#([\w-]*)(?:\?(.*))?$/s.exec(hash) ?? [null, "", ""];
  return { view, said: Object.fromEntries(new URLSearchParams(query ?? "")), isAsked: Boolean(query) };
}

// Every field of the view: what the address says, and the defaults of what it does not.
export function complete(form, defaults, said) {
  const known = Object.fromEntries(Object.entries(said).filter(([name]) => name in defaults));
  return Object.fromEntries(
    Object.keys(defaults).map((name) => [name, known[name] ?? defaultOf(form, defaults, known, name)]),
  );
}

// A pasted config in as few characters as say the same.
export function shortened(config) {
  try {
    return JSON.stringify(JSON.parse(config));
  } catch {
    return config;
  }
}
