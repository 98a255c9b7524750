// What is known of the current step: its gradients, what it saved, its hooks, and who was ready or still waited.

const MOST_ROWS = 50; // of gradients that one step passes on

function showDetails(pass, index, go, toLine) {
  const host = $("details");
  const step = pass.steps[index];
  if (!step) {
    host.replaceChildren(h("p", { class: "soft" }, "No backward pass ran: the graph shows what the forward pass built."));
    return;
  }
  const node = pass.nodes[step.node], { ready, waiting } = pass.state(index);
  const column = (...parts) => h("div", {}, parts);
  put(host,
    h("div", { class: "step-title" },
      h("span", { class: "badge" }, String(index + 1)),
      h("strong", { class: node.leaf === undefined ? "" : "leaf-name" }, node.leaf === undefined ? node.name : `${node.name} of ${node.leaf}`),
      h("span", { class: "soft" }, step.seconds === null ? "no time" : formatSeconds(step.seconds)),
    ),
    h("p", { class: "where" }, node.leaf === undefined ? null : h("span", { class: "soft" }, "used in"), lineButton(pass.siteOf(step.node), toLine), node.module ? h("span", { class: "soft" }, node.module) : null,
      node.via ? h("span", { class: "soft" }, `via ${node.via}`) : null,
      node.madeBy ? h("span", { class: "soft" }, `made by step ${node.madeBy} of a backward pass`) : null),
    step.reason ? h("p", { class: "reason" }, step.reason) : null,
    h("div", { class: "columns" }, column(
    h("h3", {}, "Gradient in"),
    gradientTable(step.arrived.map((g) => [g, null])),
    step.passed.length ? h("h3", {}, "Gradients out") : null,
    step.passed.length ? gradientTable(step.passed.map((g, i) => [g, node.edges[i]]), pass, go) : null,
    step.write ? h("p", { class: "fact" }, `.grad was ${step.write}`) : null,
    hookList(step, toLine),
    ), column(
    h("h3", {}, "Ready", h("span", { class: "soft" }, ready.length ? " next one first" : " nothing else")),
    chips(ready.map((one) => [one, ""]), "ready", pass, go),
    waiting.length ? h("h3", {}, "Waiting", h("span", { class: "soft" }, " for more gradients")) : null,
    waiting.length ? chips(waiting.map(([one, count]) => [one, String(count)]), "waiting", pass, go) : null,
    savedList(node, step),
    )),
  );
}

function lineButton(site, toLine) {
  if (!site) return null;
  const text = lineText(site);
  return h("button", { type: "button", class: "link line-link", onclick: () => toLine(site) }, placeName(site), text ? h("code", {}, text) : null);
}

function lineText(site) {
  const line = record.files[site[0]].lines.find(([number]) => number === site[1]);
  return line ? line[1].trim() : "";
}

function gradientTable(rows, pass, go) {
  const left = rows.length - MOST_ROWS;
  const body = rows.slice(0, MOST_ROWS).map(([g, target]) => {
    const to = target === null || target === undefined || !pass ? null : pass.nodes[target];
    const button = to && to.step !== undefined
      ? h("button", { type: "button", class: `link ${to.leaf === undefined ? "" : "leaf-name"}`, onclick: () => go(to.step) }, `${to.step + 1} ${pass.label(target)}`)
      : to ? pass.label(target) : "";
    if (!g) return h("tr", { class: "soft" }, h("td", {}, pass && !to ? "not needed" : "none"), h("td"), h("td"), h("td", {}, button));
    const notes = [];
    if (g.bad) notes.push(h("span", { class: "bad-text" }, `${g.bad.toLocaleString("en")} not finite${g.at ? `, first at [${g.at}]` : ""}`));
    if (g.zeros) notes.push(h("span", { class: "soft" }, `${Math.round(g.zeros * 100)}% zeros`));
    return h("tr", {}, h("td", { class: "mono" }, g.shape), h("td", { class: "mono right" }, formatNumber(g.norm)), h("td", {}, notes), h("td", {}, button));
  });
  const head = h("tr", {}, h("th", { scope: "col" }, "shape"), h("th", { scope: "col", class: "right" }, "norm"), h("td"), pass ? h("th", { scope: "col" }, "to step") : h("td"));
  return h("table", { class: "gradients" }, h("thead", {}, head), h("tbody", {}, body, left > 0 ? h("tr", { class: "soft" }, h("td", { colspan: 4 }, `and ${left} more`)) : null));
}

function hookList(step, toLine) {
  if (!step.hooks) return null;
  const rows = step.hooks.map((hook) => h("li", {}, h("code", {}, hook.function), ` ${hook.kind.replaceAll("_", " ")}`,
    hook.changed ? h("span", { class: "changed" }, " changed the gradient") : "", " ", hook.site ? h("button", { type: "button", class: "link", onclick: () => toLine(hook.site) }, placeName(hook.site)) : ""));
  return h("div", {}, h("h3", {}, "Hooks"), h("ul", { class: "plain" }, rows));
}

function savedList(node, step) {
  if (!node.saved) return null;
  const freed = step.freed ? h("span", { class: "soft" }, ` freed by this step: ${formatBytes(step.freed)}`) : null;
  const rows = node.saved.map(([name, shape, bytes, from]) => h("li", {}, h("code", {}, name), from ? h("span", { class: "leaf-name" }, ` ${from}`) : "", h("span", { class: "soft" }, ` ${shape}  ${formatBytes(bytes)}`)));
  return h("div", {}, h("h3", {}, "Saved for backward", freed), h("ul", { class: "plain" }, rows));
}

function chips(nodes, kind, pass, go) {
  const shown = nodes.slice(0, 12).map(([node, note]) => {
    const { step } = pass.nodes[node];
    const label = `${step === undefined ? "" : `${step + 1} `}${pass.label(node)}`;
    return h("button", { type: "button", class: `chip ${kind}`, disabled: step === undefined, onclick: () => go(step) }, label, note ? h("span", { class: "count" }, note) : null);
  });
  const more = nodes.length - shown.length;
  return h("div", { class: "chips" }, shown, more > 0 ? h("span", { class: "soft" }, `and ${more} more`) : null);
}
