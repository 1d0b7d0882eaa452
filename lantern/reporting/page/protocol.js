// Provenance and settings of the runs: first what is equal in all, then what differs. Last, the commands.
function pairsTable(pairs) {
  return el("table", {}, el("tbody", {}, ...pairs.map(([key, value]) => el("tr", {}, el("th", { scope: "row" }, ...breakable(key)), el("td", {}, value)))));
}
function linesTable(first, { keys, lines }) {
  const head = [first, ...keys].map(key => el("th", { scope: "col" }, ...breakable(key)));
  const line = ([name, ...values]) => el("tr", {}, el("th", { scope: "row" }, ...breakable(name)),
    ...values.map((value, i) => el("td", { "data-key": `${keys[i]}: ` }, value)));
  return el("table", { class: "lines" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...lines.map(line)));
}
function recordPart(title, name, { shared, differing }, open) {
  const parts = [];
  if (shared.length) parts.push(el("details", { open }, el("summary", {}, `${title}: the same for all`), el("div", { class: "wide" }, pairsTable(shared))));
  if (differing.lines.length)
    parts.push(el("details", {}, el("summary", {}, `${title}: different`), el("div", { class: "wide", tabindex: 0 }, linesTable(name, differing))));
  return parts;
}
function commandsPart() {
  const known = rows.filter(row => row.command).map(row => [row.label, el("code", {}, row.command)]);
  return known.length ? [el("details", {}, el("summary", {}, "Commands"), el("div", { class: "wide" }, pairsTable(known)))] : [];
}
at("record").append(...recordPart("Settings", "setting", content.protocol.settings, true), ...recordPart("Runs", "run", content.protocol.runs, false), ...commandsPart());
if (!at("record").children.length) at("protocol").hidden = true;
