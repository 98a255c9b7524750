// The search field: nodes, modules, parameters, lines and findings whose text contains all words of the query.

class Search {
  constructor(actions) {
    this.actions = actions; // {node, group, line, finding}: what to do with what was chosen
    this.field = $("search");
    this.list = $("results");
    this.field.addEventListener("input", () => this.update());
    this.field.addEventListener("focus", () => this.update());
    this.field.addEventListener("blur", () => setTimeout(() => this.close(), 150));
    this.field.addEventListener("keydown", (event) => this.key(event));
  }

  show(pass) {
    this.entries = [];
    const add = (kind, text, go) => this.entries.push({ kind, text, words: text.toLowerCase(), go });
    record.findings.forEach((finding, i) => add("finding", [finding.title, finding.kind, ...finding.names].join("  "), () => this.actions.finding(i)));
    for (const group of pass.groups) {
      if (group.kind === "module") add("module", `${group.label}  ${group.type}`, () => this.actions.group(group));
    }
    pass.nodes.forEach((node, i) => {
      const text = [node.step === undefined ? "" : node.step + 1, node.name, node.leaf, node.shape, placeName(node.site), node.module].filter((x) => x !== undefined && x !== "").join("  ");
      add(node.leaf === undefined ? "node" : "leaf", text, () => this.actions.node(i));
    });
    record.files.forEach((file, i) => {
      for (const [number, text] of file.lines) if (text.trim()) add("line", `${file.name}:${number}  ${text.trim()}`, () => this.actions.line([i, number]));
    });
  }

  update() {
    const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.found = words.length ? this.entries.filter((entry) => words.every((word) => entry.words.includes(word))) : [];
    const options = this.found.slice(0, 30).map((entry, i) => h("div", {
      role: "option", id: `result-${i}`, "aria-selected": "false", onmousedown: (event) => event.preventDefault(), onclick: () => this.choose(entry),
    }, h("span", { class: `kind ${entry.kind}` }, entry.kind), entry.text));
    if (words.length && !options.length) options.push(h("p", { class: "soft" }, "Nothing found"));
    if (this.found.length > 30) options.push(h("p", { class: "soft" }, `and ${this.found.length - 30} more`));
    this.list.replaceChildren(...options);
    this.list.hidden = !options.length;
    this.field.setAttribute("aria-expanded", String(Boolean(options.length)));
    this.point(this.found.length ? 0 : -1);
  }

  point(at) {
    this.at = at;
    [...this.list.querySelectorAll("[role=option]")].forEach((option, i) => {
      option.setAttribute("aria-selected", String(i === at));
      if (i === at) option.scrollIntoView({ block: "nearest" });
    });
    if (at >= 0) this.field.setAttribute("aria-activedescendant", `result-${at}`);
    else this.field.removeAttribute("aria-activedescendant");
  }

  key(event) {
    const count = Math.min(this.found ? this.found.length : 0, 30);
    if (event.key === "ArrowDown" && count) this.point((this.at + 1) % count);
    else if (event.key === "ArrowUp" && count) this.point((this.at + count - 1) % count);
    else if (event.key === "Enter" && this.at >= 0) this.choose(this.found[this.at]);
    else if (event.key === "Escape") {
      this.field.value = "";
      this.close();
      $("graph").focus();
    } else return;
    event.preventDefault();
  }

  choose(entry) {
    this.close();
    $("graph").focus({ preventScroll: true });
    entry.go();
  }

  close() {
    this.list.hidden = true;
    this.field.setAttribute("aria-expanded", "false");
  }
}
