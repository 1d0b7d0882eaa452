// What everything was made with: once what all runs share, apart what differs.
function pairsTable(pairs) {
  return el("table", {}, el("tbody", {}, ...pairs.map(([key, value]) => el("tr", {}, el("th", { scope: "row" }, key), el("td", {}, value)))));
}
function linesTable(first, { keys, lines }) {
  return el("table", {}, el("thead", {}, el("tr", {}, ...[first, ...keys].map(key => el("th", { scope: "col" }, key)))),
    el("tbody", {}, ...lines.map(([name, ...values]) => el("tr", {}, el("th", { scope: "row" }, name), ...values.map(value => el("td", {}, value))))));
}
function recordPart(title, name, { shared, differing }, open) {
  const parts = [];
  if (shared.length) parts.push(el("details", { open }, el("summary", {}, `${title}: what all share`), el("div", { class: "wide" }, pairsTable(shared))));
  if (differing.lines.length)
    parts.push(el("details", {}, el("summary", {}, `${title}: what differs`), el("div", { class: "wide", tabindex: 0 }, linesTable(name, differing))));
  return parts;
}
at("record").append(...recordPart("Settings", "setting", content.protocol.settings, true), ...recordPart("Runs", "run", content.protocol.runs, false));
if (!at("record").children.length) at("protocol").hidden = true;
