// The program's lines, each with how many nodes it made, what they saved, how long their backward took, and its findings.

class Source {
  constructor(select) {
    this.host = $("source");
    this.select = select; // called with the number of a node
    this.rows = new Map();
  }

  show(pass) {
    this.pass = pass;
    this.facts = new Map(pass.lines.map((line) => [line.site.join(), line]));
    this.findings = new Map();
    record.findings.forEach((finding, i) => {
      for (const [role, site] of finding.sites) {
        if (!site) continue;
        const key = site.join();
        if (!this.findings.has(key)) this.findings.set(key, []);
        this.findings.get(key).push([i, role, finding]);
      }
    });
    this.longest = Math.max(0, ...pass.lines.map((line) => line.seconds || 0));
    this.tabs = record.files.map((file, i) => h("button", {
      type: "button", role: "tab", id: `file-${i}`, title: file.path, "aria-controls": "source", onclick: () => this.open(i),
    }, file.name));
    $("files").replaceChildren(...this.tabs);
    this.shown = undefined;
    const first = pass.site || (pass.lines[0] && pass.lines[0].site);
    if (record.files.length) this.open(first ? first[0] : 0);
    else this.host.replaceChildren(h("p", { class: "soft empty" }, "The record refers to no line of a program."));
  }

  open(file) {
    if (this.shown === file) return;
    this.shown = file;
    this.tabs.forEach((tab, i) => {
      tab.setAttribute("aria-selected", String(i === file));
      tab.tabIndex = i === file ? 0 : -1;
    });
    this.rows.clear();
    const head = h("div", { class: "code-line head" }, ...["line", "nodes", "saved", "backward", ""].map((text) => h("span", {}, text)));
    const parts = [head];
    let before = 0;
    for (const [number, text] of record.files[file].lines) {
      if (number > before + 1 && before) parts.push(h("div", { class: "code-gap soft" }, "⋯"));
      before = number;
      parts.push(this.row(file, number, text), ...this.notes(file, number));
    }
    this.host.replaceChildren(...parts);
  }

  row(file, number, text) {
    const facts = this.facts.get(`${file},${number}`);
    const classes = ["code-line", facts ? "has-nodes" : "", facts && facts.bad ? "bad" : ""].filter(Boolean).join(" ");
    const share = facts && this.longest ? (facts.seconds || 0) / this.longest : 0;
    const next = () => facts && facts.nodes.length && this.select(facts.nodes[(facts.turn = ((facts.turn ?? -1) + 1) % facts.nodes.length)]);
    const row = h("div", { class: classes },
      h("span", { class: "line-number" }, String(number)),
      h("span", { class: "figure" }, facts ? h("button", { type: "button", class: "link", "aria-label": `Line ${number} made ${plural(facts.nodes.length, "node")}: go to the next`, onclick: (event) => { event.stopPropagation(); next(); } }, String(facts.nodes.length)) : ""),
      h("span", { class: "figure" }, facts ? formatBytes(facts.bytes) : ""),
      h("span", { class: "figure time" }, facts ? formatSeconds(facts.seconds) : ""),
      h("code", {}, text || " "),
    );
    if (share) row.style.setProperty("--share", share.toFixed(3));
    if (facts) row.addEventListener("click", next);
    this.rows.set(number, row);
    return row;
  }

  notes(file, number) {
    return (this.findings.get(`${file},${number}`) || []).map(([i, role, finding]) => h("div", { class: `code-note ${finding.severity}` },
      h("a", { href: `#finding-${i}` }, h("span", { class: "severity" }, role), ` ${finding.title}`)));
  }

  // Marks a line and brings it into view.
  mark(site, kind = "current") {
    for (const row of this.host.querySelectorAll(`.${kind}`)) row.classList.remove(kind);
    if (!site) return;
    this.open(site[0]);
    const row = this.rows.get(site[1]);
    if (!row) return;
    row.classList.add(kind);
    const top = row.offsetTop, { host } = this; // its offsetParent is the host
    if (top < host.scrollTop + 40 || top > host.scrollTop + host.clientHeight - 60) host.scrollTop = top - host.clientHeight / 3;
  }
}
