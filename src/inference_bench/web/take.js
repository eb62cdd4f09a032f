// What can be taken along: links, JSON, commands, tables, pictures.

const PICTURE_SCALE = 2;

export async function copy(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = copiedByHand(text) ? "Copied" : "Copying is not allowed here";
  }
  setTimeout(() => {
    button.textContent = label;
  }, 1500);
}

function copiedByHand(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  return isDone;
}

export function save(name, content, type) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// A file and what is in it, as a shell writes it: its last line is one that the text has not.
export function here(name, text) {
  let end = "EOF";
  while (text.includes(end)) end += "F";
  return `cat > ${name} <<'${end}'\n${text.trimEnd()}\n${end}`;
}

// A cell that a spreadsheet would run is made a text.
const cell = (text) => {
  const safe = /^[=+@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
};

export function csv(tables) {
  const blocks = Object.entries(tables).map(([name, rows]) => [[name], ...rows]);
  return blocks.map((rows) => rows.map((row) => row.map(cell).join(",")).join("\r\n")).join("\r\n\r\n") + "\r\n";
}

// The drawing as a file: its colours written out, on paper of its own.
export function pictureText(drawing) {
  const theme = getComputedStyle(document.documentElement);
  const colour = (role) => theme.getPropertyValue(`--${role}`).trim();
  const copyOf = drawing.cloneNode(true);
  const { width, height } = drawing.viewBox.baseVal;
  copyOf.setAttribute("width", width);
  copyOf.setAttribute("height", height);
  copyOf.setAttribute("font-family", "sans-serif");
  const text = new XMLSerializer().serializeToString(copyOf);
  const paper = `<rect width="${width}" height="${height}" fill="${colour("paper")}"/>`;
  return text
    .replace(/var\(--(\w+), (#[0-9a-f]{6})\)/g, (_, role, light) => colour(role) || light)
    .replace(/<svg\b[^>]*>/, (tag) => tag + paper);
}

export async function savePicture(drawing, name, kind) {
  const text = pictureText(drawing);
  if (kind === "svg") {
    save(`${name}.svg`, text, "image/svg+xml");
    return;
  }
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width * PICTURE_SCALE;
    canvas.height = image.height * PICTURE_SCALE;
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    const content = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
    save(`${name}.png`, content, "image/png");
  } finally {
    URL.revokeObjectURL(address);
  }
}
