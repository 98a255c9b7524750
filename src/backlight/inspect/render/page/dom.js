// Making elements, and writing numbers as words.js' twin in Python does. Text is only ever set as textContent.

function fill(target, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false || value === "") continue;
    if (name.startsWith("on")) target.addEventListener(name.slice(2), value);
    else target.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== "") target.append(child);
  }
  return target;
}

function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

// Puts children in the place of what an element has.
function put(target, ...children) {
  target.replaceChildren();
  return fill(target, {}, children);
}

const $ = (id) => document.getElementById(id);

// Three significant digits. "NaN" and "Infinity" arrive as texts, which JSON has no numbers for.
function formatNumber(value) {
  if (value === null || value === undefined) return "";
  const x = Number(value);
  if (Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  const size = Math.abs(x);
  if (size !== 0 && (size < 1e-4 || size >= 1e4)) return x.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  return String(Number(x.toPrecision(3)));
}

function formatSeconds(seconds) {
  if (seconds === null || seconds === undefined) return "";
  for (const [factor, unit] of [[1e6, "µs"], [1e3, "ms"]]) {
    const value = seconds * factor;
    if (value < 999.5) return `${value >= 9.95 ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
  }
  return `${seconds.toFixed(1)} s`;
}

function formatBytes(bytes) {
  if (!bytes) return "";
  if (bytes < 1024) return `${bytes} B`;
  const power = Math.min(Math.floor(Math.log(bytes) / Math.log(1024)), 4);
  return `${Number((bytes / 1024 ** power).toPrecision(3))} ${"KMGT"[power - 1]}iB`;
}

function plural(n, what) {
  return `${n.toLocaleString("en")} ${what}${n === 1 ? "" : /[sx]$/.test(what) ? "es" : "s"}`;
}

function isBad(statistics) {
  return Boolean(statistics && statistics.bad);
}

function totalNorm(list) {
  const norms = list.filter((g) => g && g.norm !== undefined).map((g) => Number(g.norm));
  return norms.length ? Math.hypot(...norms) : null;
}
