// Puts the page together: passes, steps, the player, findings, keys.

const SMOOTH = !window.matchMedia("(prefers-reduced-motion: reduce)").matches;
const passes = record.passes.map((data) => new Pass(data));
let pass = null, index = 0, timer = null;

const goToNode = (node) => {
  const { step } = pass.nodes[node];
  if (step !== undefined) go(step);
  else {
    source.mark(pass.siteOf(node), "asked");
    graph.reveal(pass.shown(node));
  }
};
const goToLine = (site) => {
  source.mark(site, "asked");
  bringIntoView($("source"));
};
const graph = new Graph(goToNode);
const source = new Source(goToNode);
const search = new Search({
  node: (node) => {
    if (pass.openTo(node)) graph.draw();
    goToNode(node);
    graph.reveal(pass.shown(node));
  },
  group: (group) => {
    const [first] = nodesOf(group);
    if (pass.openTo(first)) graph.draw();
    const ran = [...nodesOf(group)].map((node) => pass.nodes[node].step).filter((step) => step !== undefined);
    if (ran.length) go(Math.min(...ran));
    graph.reveal(group);
  },
  line: goToLine,
  finding: (i) => openFinding(i),
});

function bringIntoView(element) {
  const box = element.getBoundingClientRect();
  if (box.top < 0 || box.bottom > window.innerHeight) element.scrollIntoView({ block: "nearest", behavior: SMOOTH ? "smooth" : "auto" });
}

// Steps

function go(to) {
  if (!pass.steps.length) {
    showDetails(pass, 0, go, goToLine);
    return;
  }
  index = Math.min(Math.max(to, 0), pass.steps.length - 1);
  const step = pass.steps[index], node = pass.nodes[step.node];
  graph.mark(index);
  showDetails(pass, index, go, goToLine);
  source.mark(pass.siteOf(step.node));
  const words = `Step ${index + 1} of ${pass.steps.length}, ${node.name}${node.leaf === undefined ? "" : ` of ${node.leaf}`}`;
  $("slider").value = index;
  $("slider").setAttribute("aria-valuetext", words);
  $("position").textContent = `${index + 1} / ${pass.steps.length}`;
  if (!timer) $("announce").textContent = words;
}

function play(on) {
  clearInterval(timer);
  timer = null;
  if (on && pass.steps.length) {
    if (index === pass.steps.length - 1) go(0);
    timer = setInterval(() => (index < pass.steps.length - 1 ? go(index + 1) : play(false)), Number($("speed").value));
  }
  $("play").setAttribute("aria-pressed", String(Boolean(timer)));
  $("play").setAttribute("aria-label", timer ? "Pause" : "Play");
  $("play-icon").setAttribute("d", timer ? "M4 3h3v10H4zM9 3h3v10H9z" : "M4 2.5v11L13 8z");
}

// The slider's background: the norm of what arrives at each step, what isn't finite in red.
function drawMinimap() {
  const canvas = $("minimap"), ratio = window.devicePixelRatio || 1;
  const width = (canvas.width = Math.max(canvas.clientWidth, 1) * ratio), height = (canvas.height = Math.max(canvas.clientHeight, 1) * ratio);
  const norms = pass.steps.map((step) => totalNorm(step.arrived));
  const logs = norms.filter((x) => x > 0 && Number.isFinite(x)).map(Math.log10);
  const low = Math.min(...logs), range = Math.max(Math.max(...logs) - low, 1);
  const style = getComputedStyle(document.documentElement), paint = canvas.getContext("2d");
  paint.clearRect(0, 0, width, height);
  const each = width / Math.max(norms.length, 1);
  norms.forEach((norm, i) => {
    if (norm === null) return;
    const bad = !Number.isFinite(norm);
    paint.fillStyle = style.getPropertyValue(bad ? "--bad-solid" : "--track-solid");
    const tall = bad ? height : norm > 0 ? height * (0.12 + (0.88 * (Math.log10(norm) - low)) / range) : 1;
    paint.fillRect(i * each, height - tall, Math.max(each - (each > 4 ? 1 : 0), 0.6), tall);
  });
}

// Passes

function showPass(number) {
  play(false);
  pass = passes[number];
  const choice = h("select", { id: "pass", "aria-label": "Backward pass", onchange: (event) => showPass(Number(event.target.value)) },
    passes.map((one, i) => h("option", { value: i, selected: i === number }, one.title || "Forward only")));
  put($("pass-bar"),
    h("h2", {}, "Step"),
    passes.length > 1 ? choice : h("span", { class: "soft" }, pass.title || ""),
    pass.steps.length ? h("span", { class: "soft" }, `${plural(pass.steps.length, "step")} in ${formatSeconds(pass.seconds)}`) : null,
    pass.loss && pass.loss.length ? h("span", { class: "soft" }, `loss ${pass.loss.map(formatNumber).join(", ")}`) : null,
    record.passesLeftOut ? h("span", { class: "soft" }, `${plural(record.passesLeftOut, "more pass")} not on this page`) : null,
    ...pass.alarms.map(([text, step]) => h("button", { type: "button", class: "alarm", onclick: () => step !== null && go(step) }, text)),
  );
  $("slider").max = Math.max(pass.steps.length - 1, 0);
  for (const id of ["first", "previous", "play", "next", "last", "slider"]) $(id).disabled = !pass.steps.length;
  graph.at = undefined;
  graph.show(pass);
  graph.comfortable();
  graph.host.scrollTo(Math.max(0, ((graph.width + 16) * graph.zoom - graph.host.clientWidth) / 2), 0);
  source.show(pass);
  showFlow(pass, goToNode);
  search.show(pass);
  go(0);
  drawMinimap();
}

// Findings

function showFindings() {
  const { findings } = record;
  $("findings-title").textContent = findings.length ? plural(findings.length, "finding") : "";
  $("findings").hidden = !findings.length;
  const list = findings.map((finding, i) => {
    const names = new Set(finding.names);
    const related = pass.nodes.flatMap((node, n) => (node.leaf !== undefined && names.has(node.leaf) ? [n] : []));
    return h("details", { class: `finding ${finding.severity}`, id: `finding-${i}` },
      h("summary", {}, h("span", { class: "severity" }, finding.severity), h("span", { class: "finding-title" }, finding.title), h("code", { class: "soft" }, finding.kind)),
      h("div", { class: "finding-body" },
        finding.text ? h("p", {}, finding.text) : null,
        finding.fix ? h("p", { class: "fix" }, h("strong", {}, "Fix "), finding.fix) : null,
        h("ul", { class: "sites" }, finding.sites.map(([role, site, name, text]) => h("li", {}, h("span", { class: "role" }, role),
          h("button", { type: "button", class: "link line-link", onclick: () => goToLine(site) }, name, text ? h("code", {}, text) : null)))),
        h("p", { class: "facts" }, finding.numbers.map(([name, value]) => h("span", { class: "fact" }, `${name} `, h("b", {}, value))),
          related.map((node) => h("button", { type: "button", class: "chip leaf", onclick: () => goToNode(node) }, pass.label(node)))),
      ));
  });
  const more = list.splice(6);
  $("finding-list").replaceChildren(...list);
  if (more.length) {
    const button = h("button", { type: "button", onclick: () => { button.replaceWith(...more); } }, `Show ${more.length} more`);
    $("finding-list").append(button);
  }
}

function openFinding(i) {
  const hidden = $("finding-list").querySelector(":scope > button");
  if (!$(`finding-${i}`) && hidden) hidden.click();
  const finding = $(`finding-${i}`);
  finding.open = true;
  finding.querySelector("summary").focus();
  finding.scrollIntoView({ block: "nearest", behavior: SMOOTH ? "smooth" : "auto" });
}

// Keys, buttons, colours

function switchTheme() {
  const root = document.documentElement;
  const dark = root.style.colorScheme ? root.style.colorScheme === "dark" : window.matchMedia("(prefers-color-scheme: dark)").matches;
  root.style.colorScheme = dark ? "light" : "dark";
  root.classList.toggle("dark", !dark);
  root.classList.toggle("light", dark);
  try {
    localStorage.setItem("backlight-theme", root.style.colorScheme);
  } catch { /* a page opened from a file may have no storage */ }
  drawMinimap();
}

function setTheme() {
  let wanted = null;
  try {
    wanted = localStorage.getItem("backlight-theme");
  } catch { /* as above */ }
  if (wanted !== "dark" && wanted !== "light") return;
  document.documentElement.style.colorScheme = wanted;
  document.documentElement.classList.add(wanted);
}

function toggleFold() {
  if (pass.groups.every((group) => group.open)) pass.openSome();
  else pass.openAll();
  redraw();
}

function redraw() {
  graph.draw();
  if (pass.steps.length) graph.mark(index);
}

function openAround() {
  const step = pass.steps[index];
  if (step && pass.openTo(step.node)) {
    redraw();
    graph.reveal(pass.shown(step.node));
  }
}

const KEYS = {
  ArrowRight: () => go(index + 1), n: () => go(index + 1), ArrowLeft: () => go(index - 1), p: () => go(index - 1),
  Home: () => go(0), End: () => go(pass.steps.length - 1), " ": () => play(!timer), o: openAround, f: toggleFold, t: switchTheme,
  "/": () => { $("search").focus(); $("search").select(); }, "?": () => $("help").showModal(),
  "+": () => graph.zoomBy(1.2), "=": () => graph.zoomBy(1.2), "-": () => graph.zoomBy(1 / 1.2), 0: () => graph.fit(),
};

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
  const { target } = event;
  if (target.matches("input:not([type=range]), select, textarea")) return;
  if (target.matches("button, summary, a, [role=button]") && (event.key === " " || event.key === "Enter")) return;
  if (target.matches("[role=tab]") && event.key.startsWith("Arrow")) {
    const tabs = source.tabs, next = (tabs.indexOf(target) + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length;
    tabs[next].click();
    tabs[next].focus();
    event.preventDefault();
    return;
  }
  if (target.id === "slider" && ["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return; // it moves by itself
  const action = KEYS[event.key];
  if (!action) return;
  event.preventDefault();
  if (timer && event.key !== " ") play(false);
  action();
}

// The graph and what is beside it fill the window, as far as the findings above leave room.
function fitHeight() {
  $("stage").style.setProperty("--above", `${$("stage").offsetTop}px`);
}

function start() {
  setTheme();
  document.querySelector("main").hidden = false;
  $("facts").textContent = [record.engine, `policy ${record.policy}`, record.header].join(" · ");
  $("limits").hidden = !record.notObservable.length;
  $("limits").textContent = `Not observable on ${record.engine}: ${record.notObservable.join("; ")}`;
  pass = passes[0];
  showFindings();
  fitHeight();
  showPass(0);
  const on = (id, action) => $(id).addEventListener("click", action);
  on("first", () => go(0));
  on("previous", () => go(index - 1));
  on("next", () => go(index + 1));
  on("last", () => go(pass.steps.length - 1));
  on("play", () => play(!timer));
  on("theme", switchTheme);
  on("help-button", () => $("help").showModal());
  on("fold", () => { pass.openSome(); redraw(); });
  on("unfold", () => { pass.openAll(); redraw(); });
  on("zoom-in", () => graph.zoomBy(1.2));
  on("zoom-out", () => graph.zoomBy(1 / 1.2));
  on("zoom-fit", () => graph.fit());
  $("slider").addEventListener("input", () => { play(false); go(Number($("slider").value)); });
  $("speed").addEventListener("change", () => timer && play(true));
  $("colour").addEventListener("change", () => graph.colour());
  $("source").addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#finding-']");
    if (!link) return;
    event.preventDefault();
    openFinding(Number(link.hash.slice("#finding-".length)));
  });
  window.addEventListener("keydown", onKey);
  window.addEventListener("resize", () => { fitHeight(); drawMinimap(); });
  document.documentElement.dataset.ready = String(Math.round(performance.now()));
}

start();
