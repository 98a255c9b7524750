// The record. `record.passes[i]` has `nodes` ({name, edges: numbers of nodes, leaf, shape, site: [file, line], module, step, ...}),
// `steps` ({node, arrived, passed, seconds}) in call order, and `tree`: groups {kind, label, type, children}, where a child
// that is a number is a node.

const record = JSON.parse($("data").textContent);

const MANY_USES = 3; // a leaf that as many nodes use has a box at each

// A unit is what the graph shows as one box: a node, or a group of units that is open or closed.
class Pass {
  constructor(data) {
    Object.assign(this, data);
    this.unitOf = new Array(this.nodes.length);
    this.groups = [];
    this.root = this.makeUnit(this.tree, null, 0);
    this.repeatLeaves();
    this.lift();
    this.countNeeds();
    this.openSome();
  }

  makeUnit(child, parent, depth) {
    if (typeof child === "number") {
      return (this.unitOf[child] = { kind: "node", node: child, parent, depth, count: 1 });
    }
    const unit = { kind: child.kind, label: child.label, type: child.type, parent, depth, open: false, links: [], known: new Map() };
    unit.id = this.groups.push(unit) - 1;
    unit.children = child.children.map((one) => this.makeUnit(one, unit, depth + 1));
    unit.count = unit.children.reduce((sum, one) => sum + one.count, 0);
    return unit;
  }

  // A leaf that many nodes use would be joined with all of them by long lines. It gets a box at each of them instead.
  repeatLeaves() {
    const users = new Map();
    this.nodes.forEach((node, source) => {
      for (const target of new Set(node.edges)) {
        if (target === null || this.nodes[target].leaf === undefined) continue;
        if (!users.has(target)) users.set(target, []);
        users.get(target).push(source);
      }
    });
    this.uses = new Map(); // by source and target: the box
    for (const [leaf, sources] of users) {
      if (sources.length < MANY_USES) continue;
      const home = this.unitOf[leaf];
      home.parent.children = home.parent.children.filter((child) => child !== home);
      for (let group = home.parent; group; group = group.parent) group.count -= 1;
      sources.forEach((source, i) => {
        const { parent, depth } = this.unitOf[source];
        const unit = { kind: "node", node: leaf, parent, depth, count: i ? 0 : 1, use: i + 1, of: sources.length };
        parent.children.push(unit);
        this.uses.set(`${source} ${leaf}`, unit);
        if (i) return;
        this.unitOf[leaf] = unit;
        for (let group = parent; group; group = group.parent) group.count += 1;
      });
    }
  }

  // Every edge, as links between neighbours within one group: out of the groups around its node, across, and into those
  // around its target. `ways` has the links that an edge consists of, in order.
  lift() {
    this.edges = [];
    const link = (group, from, to) => {
      const key = `${from ? this.key(from) : "in"} ${to ? this.key(to) : "out"}`;
      if (!group.known.has(key)) {
        group.known.set(key, { from, to });
        group.links.push(group.known.get(key));
      }
      return group.known.get(key);
    };
    this.nodes.forEach((node, source) => {
      node.edges.forEach((target, place) => {
        if (target === null) return;
        let a = this.unitOf[source], b = this.uses.get(`${source} ${target}`) || this.unitOf[target];
        const to = b;
        const out = [], into = [];
        while (a.parent !== b.parent) {
          if (a.depth >= b.depth) {
            out.push(link(a.parent, a, null));
            a = a.parent;
          } else {
            into.unshift(link(b.parent, null, b));
            b = b.parent;
          }
        }
        this.edges.push({ source, target, place, to, way: [...out, link(a.parent, a, b), ...into] });
      });
    });
  }

  key(unit) {
    return unit.kind === "node" ? `n${unit.node}.${unit.use || 0}` : `g${unit.id}`;
  }

  // How many gradients each node waits for. In a pass that ran to its end, only nodes that ran count.
  countNeeds() {
    const whole = this.steps.length && !this.alarms.some(([text]) => text.startsWith("ended"));
    const counts = (node) => !whole || node.step !== undefined;
    this.needs = this.nodes.map(() => 0);
    for (const node of this.nodes) {
      if (!counts(node)) continue;
      for (const target of node.edges) if (target !== null && counts(this.nodes[target])) this.needs[target] += 1;
    }
    const order = this.nodes.map((_, i) => i).sort((a, b) => {
      const difference = BigInt(this.nodes[b].sequence) - BigInt(this.nodes[a].sequence);
      return difference > 0n ? 1 : difference < 0n ? -1 : 0;
    });
    this.rank = [];
    order.forEach((node, i) => (this.rank[node] = i));
  }

  // What is known when step `index` runs: nodes that are ready (the next one first) and those that still wait, with for how many.
  state(index) {
    const received = new Map();
    const ran = new Set();
    for (let i = 0; i < index; i++) {
      const node = this.steps[i].node;
      ran.add(node);
      for (const target of this.nodes[node].edges) if (target !== null) received.set(target, (received.get(target) || 0) + 1);
    }
    const current = this.steps[index] ? this.steps[index].node : null;
    const ready = [], waiting = [];
    for (const [node, got] of received) {
      if (ran.has(node) || node === current || !this.needs[node]) continue;
      if (got >= this.needs[node]) ready.push(node);
      else waiting.push([node, this.needs[node] - got]);
    }
    ready.sort((a, b) => this.rank[a] - this.rank[b]);
    return { ran, current, ready, waiting };
  }

  // Opens groups from the outside in, as long as the picture stays small. Repetitions stay folded, except in tiny graphs.
  openSome() {
    this.groups.forEach((group) => (group.open = false));
    let shown = 1;
    const queue = [this.root];
    while (queue.length) {
      const group = queue.shift();
      const grows = group.children.length - 1;
      if (group !== this.root && (shown + grows > 44 || (group.kind === "repeat" && this.nodes.length > 24))) continue;
      group.open = true;
      shown += grows;
      queue.push(...group.children.filter((child) => child.kind !== "node"));
    }
  }

  openAll() {
    this.groups.forEach((group) => (group.open = true));
  }

  openTo(node) {
    let changed = false;
    for (let unit = this.unitOf[node].parent; unit; unit = unit.parent) {
      changed = changed || !unit.open;
      unit.open = true;
    }
    return changed;
  }

  // The box that stands for a node (or for a box, if it is hidden): its own, or that of the outermost closed group around it.
  shown(node) {
    let box = typeof node === "number" ? this.unitOf[node] : node;
    for (let unit = box.parent; unit; unit = unit.parent) if (!unit.open) box = unit;
    return box;
  }

  // The line that made a node, or that a leaf was first used in.
  siteOf(number) {
    const { site, leaf } = this.nodes[number];
    if (site || leaf === undefined) return site;
    if (!this.users) {
      this.users = new Map();
      for (const edge of this.edges) if (!this.users.has(edge.target)) this.users.set(edge.target, this.nodes[edge.source].site);
    }
    return this.users.get(number);
  }

  label(node) {
    const { name, leaf } = this.nodes[node];
    return leaf === undefined ? name : leaf;
  }
}

function placeName(site) {
  return site ? `${record.files[site[0]].name}:${site[1]}` : "";
}

function* nodesOf(unit) {
  if (unit.kind === "node") {
    if (unit.count) yield unit.node;
  }
  else for (const child of unit.children) yield* nodesOf(child);
}
