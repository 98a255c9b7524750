// A layered layout, from the loss at the top down to the leaves. Every open group is laid out by itself and is then one
// box in the group around it. Links that span several layers, and those that enter or leave a group, run through
// invisible stops, so that lines go around boxes and not through them.

const GAP_X = 18, GAP_Y = 30, PADDING = 14, TITLE = 26;
const LONGEST_ROUTE = 40; // links over more layers than this are drawn straight

function layoutGroup(group, sizeOf) {
  for (const child of group.children) {
    if (child.kind !== "node" && child.open) layoutGroup(child, sizeOf);
    else [child.width, child.height] = sizeOf(child);
  }
  const layers = assignLayers(group);
  orderLayers(layers);
  placeAcross(layers);
  placeDown(group, layers);
}

// Layers of items {unit or null for a stop, width, above, below}; records in each link the stops that it runs through.
function assignLayers(group) {
  const items = new Map(group.children.map((unit) => [unit, newItem(unit, unit.width)]));
  const inner = group.links.filter((link) => link.from && link.to);
  const next = new Map(group.children.map((unit) => [unit, []]));
  for (const link of inner) next.get(link.from).push(link.to);
  const order = topological(group.children, next);
  const layer = new Map(order.map((unit) => [unit, 0]));
  const position = new Map(order.map((unit, i) => [unit, i]));
  const forward = (from, to) => position.get(from) < position.get(to);
  const enters = new Set(group.links.filter((link) => !link.from).map((link) => link.to));
  const entered = new Set(inner.map((link) => link.to));
  const shift = enters.size ? 1 : 0;
  for (const unit of order) {
    if (enters.has(unit)) layer.set(unit, Math.max(layer.get(unit), shift));
    for (const to of next.get(unit)) if (forward(unit, to)) layer.set(to, Math.max(layer.get(to), layer.get(unit) + 1));
  }
  for (const unit of [...order].reverse()) { // what nothing leads to moves down to what it leads to
    const below = next.get(unit).filter((to) => forward(unit, to)).map((to) => layer.get(to));
    if (!entered.has(unit) && !enters.has(unit) && below.length) layer.set(unit, Math.min(...below) - 1);
  }
  let bottom = 0;
  for (const at of layer.values()) bottom = Math.max(bottom, at);
  if (group.links.some((link) => !link.to)) bottom += 1;
  const layers = Array.from({ length: bottom + 1 }, () => []);
  for (const unit of order) layers[layer.get(unit)].push(items.get(unit));

  const stop = (at) => {
    const item = newItem(null, 6);
    layers[at].push(item);
    return item;
  };
  for (const link of group.links) {
    const from = link.from ? layer.get(link.from) : -1;
    const to = link.to ? layer.get(link.to) : bottom + 1;
    link.stops = [];
    if (from >= to || to - from > LONGEST_ROUTE) continue;
    let last = link.from ? items.get(link.from) : null;
    for (let at = from + 1; at < to; at++) {
      const item = stop(at);
      link.stops.push(item);
      if (last) join(last, item);
      last = item;
    }
    if (last && link.to) join(last, items.get(link.to));
  }
  return layers;
}

function newItem(unit, width) {
  return { unit, width, x: 0, above: [], below: [] };
}

function join(upper, lower) {
  upper.below.push(lower);
  lower.above.push(upper);
}

// Units so that links lead forward; where there is a circle, one of its links leads back.
function topological(units, next) {
  const state = new Map(), done = [];
  for (const start of units.slice().reverse()) {
    if (state.has(start)) continue;
    const stack = [[start, 0]];
    state.set(start, 1);
    while (stack.length) {
      const top = stack[stack.length - 1], targets = next.get(top[0]);
      if (top[1] < targets.length) {
        const to = targets[top[1]++];
        if (!state.has(to)) {
          state.set(to, 1);
          stack.push([to, 0]);
        }
      } else {
        done.push(top[0]);
        stack.pop();
      }
    }
  }
  return done.reverse();
}

// Sorts each layer by where its neighbours are, a few times down and up, which takes out most crossings.
function orderLayers(layers) {
  const total = layers.reduce((sum, layer) => sum + layer.length, 0);
  const number = () => layers.forEach((layer) => layer.forEach((item, i) => (item.order = i)));
  number();
  for (let round = 0; round < (total > 20000 ? 1 : 4); round++) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : layers.slice().reverse()) {
      for (const item of layer) {
        const near = down ? item.above : item.below;
        item.key = near.length ? near.reduce((sum, one) => sum + one.order, 0) / near.length : item.order;
      }
      layer.sort((a, b) => a.key - b.key || a.order - b.order);
      layer.forEach((item, i) => (item.order = i));
    }
  }
}

function placeAcross(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const item of layer) {
      item.x = x + item.width / 2;
      x += item.width + GAP_X;
    }
  }
  for (let round = 0; round < 6; round++) {
    const down = round % 2 === 0;
    for (const layer of down ? layers : layers.slice().reverse()) settle(layer, down ? "above" : "below");
  }
}

// Moves the items of a layer as near to their neighbours as their order and widths allow (least squares: isotonic regression).
function settle(layer, side) {
  const blocks = [];
  let offset = 0;
  layer.forEach((item, i) => {
    if (i) offset += (layer[i - 1].width + item.width) / 2 + GAP_X;
    const near = item[side];
    const wish = near.length ? near.reduce((sum, one) => sum + one.x, 0) / near.length : item.x;
    const weight = near.length ? (item.unit ? 2 : 3) : 0.2;
    item.offset = offset;
    blocks.push({ sum: (wish - offset) * weight, weight, items: [item] });
    while (blocks.length > 1) {
      const last = blocks[blocks.length - 1], before = blocks[blocks.length - 2];
      if (before.sum / before.weight <= last.sum / last.weight) break;
      blocks.pop();
      before.sum += last.sum;
      before.weight += last.weight;
      before.items.push(...last.items);
    }
  });
  for (const block of blocks) for (const item of block.items) item.x = block.sum / block.weight + item.offset;
}

function placeDown(group, layers) {
  let left = Infinity, right = -Infinity;
  for (const layer of layers) {
    for (const item of layer) {
      left = Math.min(left, item.x - item.width / 2);
      right = Math.max(right, item.x + item.width / 2);
    }
  }
  if (left > right) left = right = 0; // a group without anything
  const title = group.parent ? TITLE : 0;
  const wanted = group.parent ? titleWidth(group) : 0;
  const spare = Math.max(0, wanted - (right - left));
  let y = title + PADDING;
  for (const layer of layers) {
    const height = Math.max(0, ...layer.map((item) => (item.unit ? item.unit.height : 0)));
    for (const item of layer) {
      item.x += PADDING - left + spare / 2;
      item.top = y;
      item.bottom = y + height;
      if (item.unit) {
        item.unit.x = item.x - item.unit.width / 2;
        item.unit.y = y + (item.unit.kind === "node" || !item.unit.open ? (height - item.unit.height) / 2 : 0);
      }
    }
    y += height + (height ? GAP_Y : 4);
  }
  group.width = right - left + spare + 2 * PADDING;
  group.height = y - GAP_Y + PADDING + (layers[layers.length - 1].some((item) => item.unit) ? 0 : GAP_Y - 4);
}

// From places within a group to places in the picture.
function makeAbsolute(group, x, y) {
  group.left = x;
  group.top = y;
  for (const link of group.links) for (const stop of link.stops) stop.at = [x + stop.x, y + stop.top, y + stop.bottom];
  for (const child of group.children) {
    if (child.kind !== "node" && child.open) makeAbsolute(child, x + child.x, y + child.y);
    else [child.left, child.top] = [x + child.x, y + child.y];
  }
}
