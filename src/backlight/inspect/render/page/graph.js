// The picture of the graph: boxes for nodes, frames for open groups, lines along which gradients pass.

const LETTER = 6.7; // width of a letter of the 11 px monospaced font
const TITLE_LETTER = 7;

// Names may be of any length, and boxes shouldn't.
function shortened(text, most = 48) {
  return text.length <= most ? text : `${text.slice(0, most / 2 - 1)}…${text.slice(-most / 2)}`;
}

function titleWidth(group) {
  return (shortened(group.label).length + shortened(group.type).length + 8) * TITLE_LETTER + 60;
}

class Graph {
  constructor(select) {
    this.host = $("graph");
    this.select = select; // called with the number of a node
    this.zoom = 1;
    this.drag();
  }

  show(pass) {
    this.pass = pass;
    this.zoom = 1;
    this.draw();
  }

  // The two lines of text in a node's box.
  texts(unit) {
    const data = this.pass.nodes[unit.node];
    if (data.leaf !== undefined) return [shortened(data.leaf), [data.shape, unit.of ? `use ${unit.use} of ${unit.of}` : ""].filter(Boolean).join(" · ")];
    const around = unit.parent.type ? `${unit.parent.label} · ${unit.parent.type}` : unit.parent.label;
    const second = data.module && data.module !== around && this.isAlone(unit) ? data.module : placeName(data.site);
    return [shortened(data.name), [shortened(second), data.shape].filter(Boolean).join(" · ")];
  }

  // Whether a node is all that its module's call made, and so stands for the module.
  isAlone(unit) {
    for (let group = unit.parent; group; group = group.parent) {
      if (group.kind === "module") return this.pass.nodes[unit.node].module !== [group.label, group.type].filter(Boolean).join(" · ");
    }
    return true;
  }

  sizeOf(unit) {
    if (unit.kind !== "node") {
      const [first, second] = this.groupTexts(unit);
      return [Math.max(120, Math.max(first.length + 6, second.length) * LETTER + 34), 50];
    }
    const [first, second] = this.texts(unit);
    const { leaf, step } = this.pass.nodes[unit.node];
    const digits = step === undefined ? 0 : String(step + 1).length * 6 + 14;
    if (leaf !== undefined) return [(first.length + second.length + 1) * LETTER + 24 + digits, 26];
    return [Math.max(first.length * LETTER + 24 + digits, second.length * LETTER + 28), 42];
  }

  groupTexts(unit) {
    const bytes = this.bytes(unit);
    return [shortened([unit.label, unit.type].filter(Boolean).join(" · ")), `${plural(unit.count, "node")}${bytes ? ` · ${formatBytes(bytes)} saved` : ""}`];
  }

  bytes(unit) {
    if (unit.bytes === undefined) {
      unit.bytes = unit.kind === "node" ? this.pass.nodes[unit.node].bytes : unit.children.reduce((sum, one) => sum + this.bytes(one), 0);
    }
    return unit.bytes;
  }

  draw() {
    const { pass } = this;
    layoutGroup(pass.root, (unit) => this.sizeOf(unit));
    makeAbsolute(pass.root, 0, 0);
    this.boxes = new Map();
    this.back = s("g");
    this.lines = s("g", { class: "lines" });
    this.front = s("g");
    this.drawGroup(pass.root);
    this.drawLines();
    this.width = pass.root.width;
    this.height = pass.root.height;
    this.picture = s("svg", { role: "presentation" }, this.markers(), this.back, this.lines, this.front);
    this.host.replaceChildren(this.picture);
    this.scale(this.zoom);
    $("graph-count").textContent = this.boxes.size < pass.nodes.length ? `${plural(pass.nodes.length, "node")} in ${plural(this.boxes.size, "box")}` : plural(pass.nodes.length, "node");
    if (pass.nodesLeftOut) $("graph-count").append(`, ${pass.nodesLeftOut.toLocaleString("en")} older ones left out`);
    this.colour();
    if (this.at !== undefined) this.mark(this.at, false);
  }

  markers() {
    const tip = (name) => s("marker", { id: `tip-${name}`, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, markerUnits: "userSpaceOnUse", orient: "auto", class: `tip ${name}` }, s("path", { d: "M0 0 8 4 0 8z" }));
    return s("defs", {}, tip("plain"), tip("bad"), tip("zero"), tip("current"));
  }

  drawGroup(group) {
    if (group.parent) this.drawFrame(group);
    for (const child of group.children) {
      if (child.kind === "node") this.drawNode(child);
      else if (child.open) this.drawGroup(child);
      else this.drawClosed(child);
    }
  }

  toggle(group) {
    group.open = !group.open;
    if (group.open && group.kind === "repeat") { // so that one sees what is repeated
      const first = group.children.filter((child) => child.kind !== "node").pop();
      if (first) first.open = true;
    }
    const before = [group.left - this.host.scrollLeft / this.zoom, group.top - this.host.scrollTop / this.zoom];
    this.draw();
    this.host.scrollLeft = (group.left - before[0]) * this.zoom; // it stays where it was on the screen
    this.host.scrollTop = (group.top - before[1]) * this.zoom;
    const again = this.picture.querySelector(`[data-group="${group.id}"]`);
    if (again) again.focus({ preventScroll: true });
  }

  button(group, words) {
    const toggle = () => this.toggle(group);
    return {
      tabindex: 0, role: "button", "aria-expanded": String(group.open), "aria-label": words, "data-group": group.id, onclick: toggle,
      onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        event.stopPropagation();
        toggle();
      },
    };
  }

  drawFrame(group) {
    const title = group.kind === "repeat" ? `${group.label} ×${group.children.length}` : group.label;
    const words = `${shortened(title)} ${shortened(group.type)}, ${plural(group.count, "node")}: fold`;
    this.back.append(
      s("rect", { class: `frame ${group.kind} ${group.depth % 2 ? "odd" : "even"}`, x: group.left, y: group.top, width: group.width, height: group.height, rx: 8 }),
    );
    const text = s("text", { class: "frame-title", x: group.left + 26, y: group.top + 18 }, `${shortened(title)} `, s("tspan", { class: "type" }, shortened(group.type)));
    const handle = s("rect", { class: "handle", x: group.left + 3, y: group.top + 3, width: Math.min(group.width - 6, titleWidth(group) - 30), height: TITLE - 4, rx: 5 });
    const sign = s("path", { class: "sign", d: `M${group.left + 10} ${group.top + 13}h9` });
    this.front.append(s("g", this.button(group, words), handle, sign, text));
  }

  drawClosed(group) {
    const { left: x, top: y, width, height } = group;
    const [first, second] = this.groupTexts(group);
    const repeat = group.kind === "repeat";
    const words = `${first} ${second} ${repeat ? `×${group.children.length}` : ""}: open`; // what one sees, in this order
    const box = s("g", { class: `box closed ${group.kind}`, ...this.button(group, words) });
    if (repeat) for (const shift of [6, 3]) box.append(s("rect", { class: "card under", x: x + shift, y: y - shift, width, height, rx: 7 }));
    box.append(
      s("rect", { class: "card", x, y, width, height, rx: 7 }),
      s("rect", { class: "heat", x: x + 4, y: y + 9, width: 4, height: height - 18, rx: 2 }),
      s("text", { class: "name", x: x + 16, y: y + 20 }, `${first} `),
      s("text", { class: "second", x: x + 16, y: y + 35 }, `${second} `),
      s("rect", { class: "progress-track", x: x + 16, y: y + height - 9, width: width - 32, height: 3, rx: 1.5 }),
      s("rect", { class: "progress", x: x + 16, y: y + height - 9, width: 0, height: 3, rx: 1.5 }),
    );
    if (repeat) box.append(s("text", { class: "times", x: x + width - 10, y: y + 20 }, `×${group.children.length}`));
    else box.append(s("path", { class: "sign", d: `M${x + width - 18} ${y + 15}h9m-4.5 -4.5v9` }));
    this.front.append(box);
    this.boxes.set(group, box);
  }

  drawNode(unit) {
    const node = this.pass.nodes[unit.node], { left: x, top: y, width, height } = unit;
    const [first, second] = this.texts(unit);
    const leaf = node.leaf !== undefined;
    const box = s("g", { class: `box ${leaf ? "leaf" : "node"}`, "data-node": unit.node, onclick: () => this.select(unit.node) });
    box.append(
      s("title", {}, this.tooltip(unit.node)),
      s("rect", { class: "card", x, y, width, height, rx: leaf ? height / 2 : 6 }),
    );
    if (leaf) {
      box.append(s("text", { class: "name", x: x + 13, y: y + 17 }, first, s("tspan", { class: "second", dx: 7 }, second)));
    } else {
      box.append(
        s("rect", { class: "heat", x: x + 4, y: y + 7, width: 4, height: height - 14, rx: 2 }),
        s("text", { class: "name", x: x + 15, y: y + 18 }, first),
        s("text", { class: "second", x: x + 15, y: y + 33 }, second),
      );
    }
    if (node.step !== undefined) box.append(s("text", { class: "number", x: x + width - 9, y: y + (leaf ? 17 : 18) }, node.step + 1));
    this.front.append(box);
    this.boxes.set(unit, box);
  }

  tooltip(number) {
    const node = this.pass.nodes[number], step = this.pass.steps[node.step];
    const lines = [node.leaf === undefined ? node.name : `${node.name} of ${node.leaf}`];
    if (node.site) lines.push(placeName(node.site));
    if (node.module) lines.push(node.module);
    if (step) lines.push(`step ${node.step + 1}, gradient norm ${formatNumber(totalNorm(step.arrived)) || "not measured"}`);
    else if (this.pass.steps.length) lines.push("did not run");
    return lines.join("\n");
  }

  // One line per pair of boxes, however many edges there are between what they stand for.
  drawLines() {
    const { pass } = this, pairs = new Map();
    for (const edge of pass.edges) {
      const from = pass.shown(edge.source), to = pass.shown(edge.to);
      if (from === to) continue;
      const key = `${pass.key(from)} ${pass.key(to)}`;
      if (!pairs.has(key)) pairs.set(key, { from, to, edges: [], stops: [] });
      const pair = pairs.get(key);
      if (!pair.edges.length) pair.stops = this.stops(edge, from, to);
      pair.edges.push(edge);
    }
    const out = new Map(), into = new Map();
    const add = (map, unit, pair) => (map.has(unit) ? map.get(unit).push(pair) : map.set(unit, [pair]));
    for (const pair of pairs.values()) {
      add(out, pair.from, pair);
      add(into, pair.to, pair);
    }
    const middle = (unit) => unit.left + unit.width / 2;
    const spread = (list, unit, toward, name) => {
      list.sort((a, b) => toward(a) - toward(b));
      const room = Math.min(unit.width * 0.6, 14 * (list.length - 1));
      list.forEach((pair, i) => (pair[name] = middle(unit) + (list.length > 1 ? room * (i / (list.length - 1) - 0.5) : 0)));
    };
    for (const [unit, list] of out) spread(list, unit, (pair) => (pair.stops.length ? pair.stops[0][0] : middle(pair.to)), "x1");
    for (const [unit, list] of into) spread(list, unit, (pair) => (pair.stops.length ? pair.stops[pair.stops.length - 1][0] : middle(pair.from)), "x2");
    this.paths = [];
    for (const pair of pairs.values()) {
      const kind = this.kindOf(pair.edges);
      const path = s("path", { class: `line ${kind}`, d: this.curve(pair), "marker-end": `url(#tip-${kind})` });
      this.lines.append(path);
      this.paths.push([path, pair]);
    }
  }

  // The stops of an edge that lie between the two boxes that it joins now.
  stops(edge, from, to) {
    const open = (unit) => {
      for (let group = unit; group; group = group.parent) if (!group.open) return false;
      return true;
    };
    const links = edge.way.filter((link) => open((link.from || link.to).parent));
    return links.flatMap((link) => link.stops.map((stop) => stop.at));
  }

  curve({ from, to, x1, x2, stops }) {
    let x = x1, y = from.top + from.height;
    const parts = [`M${x.toFixed(1)} ${y.toFixed(1)}`];
    const bend = (x3, y3) => {
      const half = Math.max((y3 - y) / 2, Math.min(20, Math.abs(y3 - y)));
      parts.push(`C${x.toFixed(1)} ${(y + half).toFixed(1)} ${x3.toFixed(1)} ${(y3 - half).toFixed(1)} ${x3.toFixed(1)} ${y3.toFixed(1)}`);
      [x, y] = [x3, y3];
    };
    for (const [at, top, bottom] of stops) {
      if (top > y + 1) bend(at, top);
      if (bottom > y) {
        parts.push(`V${bottom.toFixed(1)}`);
        y = bottom;
      }
    }
    bend(x2, to.top - 1);
    return parts.join("");
  }

  kindOf(edges) {
    let zero = true, known = false;
    for (const { source, place } of edges) {
      const step = this.pass.steps[this.pass.nodes[source].step];
      const passed = step && step.passed[place];
      if (isBad(passed)) return "bad";
      if (passed && passed.norm !== undefined) {
        known = true;
        if (Number(passed.norm) !== 0) zero = false;
      }
    }
    return known && zero ? "zero" : "plain";
  }

  // Colours the strips at the left of boxes: from cool (the smallest) to hot (the largest), on a logarithmic scale.
  colour() {
    const what = $("colour").value, values = new Map();
    const valueOf = (number) => {
      const node = this.pass.nodes[number], step = this.pass.steps[node.step];
      if (what === "bytes") return node.bytes;
      if (!step) return null;
      return what === "norm" ? totalNorm(step.arrived) : step.seconds;
    };
    for (const unit of this.boxes.keys()) {
      let largest = null;
      for (const number of nodesOf(unit)) {
        const value = valueOf(number);
        if (value !== null && !Number.isFinite(value)) largest = NaN;
        else if (value !== null && !Number.isNaN(largest)) largest = what === "norm" ? Math.max(largest ?? 0, value) : (largest ?? 0) + value;
      }
      values.set(unit, largest);
    }
    const logs = [...values.values()].filter((value) => value > 0).map(Math.log10);
    const low = Math.min(...logs), range = Math.max(Math.max(...logs) - low, 1);
    for (const [unit, value] of values) {
      const heat = this.boxes.get(unit).querySelector(".heat");
      if (!heat) continue;
      heat.classList.toggle("bad", Number.isNaN(value));
      heat.style.fill = value > 0 ? `hsl(${(225 - 205 * ((Math.log10(value) - low) / range)).toFixed(0)} 75% 52%)` : "";
    }
  }

  // Shows how far the pass is: what ran, runs now, is ready, waits.
  mark(index, follow = true) {
    this.at = index;
    const { pass } = this, { ran, current, ready, waiting } = pass.state(index);
    const isReady = new Set(ready), isWaiting = new Set(waiting.map(([node]) => node));
    const now = current === null ? null : pass.shown(current);
    for (const [unit, box] of this.boxes) {
      const classes = box.classList;
      if (unit.kind === "node") {
        classes.toggle("ran", ran.has(unit.node));
        classes.toggle("ready", isReady.has(unit.node));
        classes.toggle("waiting", isWaiting.has(unit.node));
      } else {
        let done = 0;
        for (const node of nodesOf(unit)) if (ran.has(node)) done += 1; // of a shared leaf, its first box counts
        classes.toggle("ran", done === unit.count);
        box.querySelector(".progress").setAttribute("width", ((unit.width - 32) * done) / unit.count);
      }
      classes.toggle("current", unit === now || (unit.kind === "node" && unit.node === current));
    }
    for (const [path, { from, edges }] of this.paths) {
      path.classList.toggle("current", from === now && edges.some((edge) => edge.source === current));
      path.classList.toggle("ahead", !edges.some((edge) => ran.has(edge.source)) && pass.steps.length > 0);
    }
    if (follow && now) this.reveal(now);
  }

  reveal(unit) {
    const { host, zoom } = this;
    const x = (unit.left + unit.width / 2) * zoom, y = (unit.top + unit.height / 2) * zoom;
    const outX = x < host.scrollLeft + 80 || x > host.scrollLeft + host.clientWidth - 80;
    const outY = y < host.scrollTop + 60 || y > host.scrollTop + host.clientHeight - 80;
    if (outX || outY) host.scrollTo({ left: outX ? x - host.clientWidth / 2 : host.scrollLeft, top: outY ? y - host.clientHeight / 3 : host.scrollTop });
  }

  scale(zoom) {
    this.zoom = Math.min(2.5, Math.max(0.03, zoom));
    const { picture, width, height } = this;
    picture.setAttribute("viewBox", `-8 -8 ${width + 16} ${height + 16}`);
    picture.setAttribute("width", (width + 16) * this.zoom);
    picture.setAttribute("height", (height + 16) * this.zoom);
  }

  zoomBy(factor) {
    const { host, zoom } = this;
    const x = (host.scrollLeft + host.clientWidth / 2) / zoom, y = (host.scrollTop + host.clientHeight / 2) / zoom;
    this.scale(zoom * factor);
    host.scrollLeft = x * this.zoom - host.clientWidth / 2;
    host.scrollTop = y * this.zoom - host.clientHeight / 2;
  }

  fit() {
    const { host } = this;
    const whole = Math.min((host.clientWidth - 20) / (this.width + 16), (host.clientHeight - 20) / (this.height + 16));
    this.scale(Math.min(whole, 1.25));
  }

  // As large as it can be read, but not wider than there is room if it is only a little too wide.
  comfortable() {
    const wide = (this.host.clientWidth - 20) / (this.width + 16), high = (this.host.clientHeight - 20) / (this.height + 16);
    this.scale(Math.min(1, Math.max(Math.min(wide, high), Math.min(wide, 0.85), 0.6)));
  }

  drag() {
    const { host } = this;
    let start = null;
    host.addEventListener("pointerdown", (event) => {
      if (event.button === 0 && event.target.closest(".box, [role=button]") === null) start = [event.clientX + host.scrollLeft, event.clientY + host.scrollTop];
    });
    window.addEventListener("pointermove", (event) => {
      if (!start) return;
      host.classList.add("dragging");
      host.scrollLeft = start[0] - event.clientX;
      host.scrollTop = start[1] - event.clientY;
    });
    window.addEventListener("pointerup", () => {
      start = null;
      host.classList.remove("dragging");
    });
    host.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoomBy(event.deltaY < 0 ? 1.15 : 1 / 1.15);
    }, { passive: false });
  }
}
