// Gradient norms per part of the network, first to last, on a logarithmic scale, and the gradients of all parameters.

function showFlow(pass, select) {
  const rows = pass.flow.filter((row) => row.nodes.length && (row.weights !== null || row.activations !== null));
  const host = $("flow");
  const title = h("div", { class: "bar" }, h("h2", { id: "flow-title" }, "Gradient flow"),
    h("span", { class: "key activations" }, "at the output"), h("span", { class: "key weights" }, "of the weights"),
    h("span", { class: "soft" }, "norm, first layer at the top"));
  if (!rows.length) {
    put(host, title, h("p", { class: "soft empty" }, record.policy === "shapes" ? "This record has shapes only. Record with policy \"norms\" to see how large gradients are." : "No gradient was measured."), parameterTable(pass));
    return;
  }
  const logs = rows.flatMap((row) => [row.weights, row.activations]).map(Number).filter((x) => x > 0 && Number.isFinite(x)).map(Math.log10);
  const low = Math.floor(Math.min(...logs, 0) - 0.01), high = Math.max(Math.ceil(Math.max(...logs, low + 1)), low + 1);
  const place = (value) => (100 * (Math.log10(value) - low)) / (high - low);
  const every = Math.ceil((high - low) / 10);
  const ticks = [];
  for (let power = low; power <= high; power += every) ticks.push(h("span", { class: "tick", style: `left:${place(10 ** power)}%` }, `1e${power}`));
  const grid = h("div", { class: "flow-grid", style: `--step:${(100 * every) / (high - low)}%` },
    h("div", { class: "flow-row flow-axis", "aria-hidden": "true" }, h("span"), h("span", { class: "axis" }, ticks), h("span"), h("span")),
    rows.map((row) => flowRow(row, place, select)));
  put(host, title, grid, parameterTable(pass));
}

function flowRow(row, place, select) {
  const bar = (value, kind) => {
    if (value === null) return h("span", { class: "flow-bar none" });
    const x = Number(value), regular = x > 0 && Number.isFinite(x);
    const bar = h("span", { class: `flow-bar ${kind} ${regular ? "" : x === 0 ? "zero" : "not-finite"}` });
    bar.style.width = regular ? `${Math.max(place(x), 0.4)}%` : x === 0 ? "0.4%" : "100%";
    return bar;
  };
  const words = `${row.label} ${row.type || placeName(row.site)}: output ${formatNumber(row.activations) || "not measured"}, weights ${formatNumber(row.weights) || "none"}`;
  return h("div", { class: "flow-row" },
    h("button", { type: "button", class: "link flow-label", "aria-label": words, onclick: () => select(row.nodes[row.nodes.length - 1]) }, `${row.label} `, h("span", { class: "soft" }, row.type || placeName(row.site))),
    h("span", { class: "bars", "aria-hidden": "true" }, bar(row.activations, "activations"), bar(row.weights, "weights")),
    h("span", { class: "figure activations-text" }, formatNumber(row.activations)),
    h("span", { class: "figure weights-text" }, formatNumber(row.weights)));
}

function parameterTable(pass) {
  if (!pass.gradients.length) return null;
  const trouble = (row) => row.requiresGrad && (!row.value || isBad(row.value) || Number(row.value.norm) === 0);
  const rows = pass.gradients.map((row) => h("tr", { class: trouble(row) ? "trouble" : "" },
    h("th", { scope: "row", class: "mono" }, row.name), h("td", { class: "mono" }, row.shape),
    h("td", { class: "mono right" }, row.value ? formatNumber(row.value.norm) || "there" : "None"),
    h("td", { class: "right" }, row.value ? (row.value.zeros ? `${Math.round(row.value.zeros * 100)}%` : "0") : ""),
    h("td", { class: "right" }, row.value ? (row.value.bad || 0).toLocaleString("en") : ""),
    h("td", { class: "soft" }, row.requiresGrad ? "" : "frozen")));
  const bad = pass.gradients.filter(trouble).length;
  const head = ["parameter", "shape", "norm", "zeros", "not finite", ""].map((text, i) => h(text ? "th" : "td", { scope: text && "col", class: i > 1 && i < 5 ? "right" : "" }, text));
  return h("details", { open: pass.gradients.length <= 12 },
    h("summary", {}, `Gradients of ${plural(pass.gradients.length, "parameter")} after the pass`, bad ? h("span", { class: "trouble" }, ` ${bad} None, zero or not finite`) : ""),
    h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Gradients of the parameters" }, h("table", { class: "parameters" }, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows))));
}
