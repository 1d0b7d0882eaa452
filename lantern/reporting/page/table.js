// The settings as a table. A heading explains itself on hover and focus, and sorts: best first, then the other way round,
// then as measured. Every row copies the command that measures it again.
const sorting = { key: null, down: false };
// A lower bound stands in the column of its figure where there is one, as of an output TV; otherwise in its own.
// One that belongs beside another stands there, as in a terminal.
const isShown = column =>
  column.shown || byKey[column.beside]?.shown || (column.bound_of && !byKey[column.bound_of]);
const tableKeys = () => columns.filter(column => isShown(column) || at("all-columns").checked);
const ABOUT_SETTING = "What the methods differ in. Below it: whether the setting's law is plain decoding's (lossless) or not " +
  "(lossy), whether its drafter was trained, and whether a lossy one is within the budget: yes, every limit is kept, bounds " +
  "included; open, by the values alone or by too few images; no, a limit is not kept.";
const ABOUT_COMMAND = "Copies the command that measures this setting again, with the overrides it was run with.";

function sortedRows() {
  const order = rows.map((_, index) => index);
  if (sorting.key == null) return order;
  const known = order.filter(index => valueOf(rows[index], sorting.key) != null);
  const value = index => valueOf(rows[index], sorting.key);
  known.sort((a, b) => (sorting.down ? value(b) - value(a) : value(a) - value(b)));
  return [...known, ...order.filter(index => !known.includes(index))];
}

function sortBy(column) {
  const first = column.better !== "low";
  if (sorting.key !== column.key) Object.assign(sorting, { key: column.key, down: first });
  else if (sorting.down === first) sorting.down = !first;
  else sorting.key = null;
  drawTable();
  at("table").querySelector(`button[data-key="${column.key}"]`).focus();
}

function meaningOf(column) {
  const direction = { high: " Higher is better.", low: " Lower is better." }[column.better] ?? "";
  const bounded = rows.some(row => bounds(row, column.key)) ? " In brackets: 95 % bounds." : "";
  return column.explanation + direction + bounded;
}

// A heading's explanation: read with the heading by a screen reader, and shown below it while it is pointed at or focused.
function explained(node, id, text) {
  const tip = el("div", { class: "tip", id, role: "tooltip", hidden: true }, text);
  const show = () => {
    for (const other of at("column-tips").children) other.hidden = other !== tip;
    const box = node.getBoundingClientRect(), frame = at("column-tips").getBoundingClientRect();
    const room = document.documentElement.clientWidth - frame.left - tip.offsetWidth - 8;
    tip.style.left = `${Math.max(0, Math.min(box.left - frame.left, room))}px`;
    tip.style.top = `${box.bottom - frame.top + 6}px`;
  };
  const hide = () => { tip.hidden = true; };
  for (const [name, act] of [["mouseenter", show], ["focus", show], ["mouseleave", hide], ["blur", hide]])
    node.addEventListener(name, act);
  node.addEventListener("keydown", event => { if (event.key === "Escape") hide(); });
  node.setAttribute("aria-describedby", id);
  at("column-tips").append(tip);
  return node;
}

function heading(column) {
  const direction = sorting.key !== column.key ? "none" : sorting.down ? "descending" : "ascending";
  const button = el("button", { "data-key": column.key, onclick: () => sortBy(column) }, column.title);
  return el("th", { scope: "col", "aria-sort": direction }, explained(button, `about-${column.key}`, meaningOf(column)));
}

function plainHeading(name, meaning) {
  const label = el("span", { tabindex: 0, "data-key": name }, name);
  return el("th", { scope: "col" }, explained(label, `about-${name}`, meaning));
}

function cell(row, column) {
  const lower = columns.find(other => other.bound_of === column.key && valueOf(row, other.key) != null);
  const below = valueOf(row, column.key) == null && !row.values.lossless && lower, key = below ? lower.key : column.key;
  const ends = bounds(row, key), value = number(valueOf(row, key));
  const lacks = key === "output_tv" && !ends && valueOf(row, key) != null; // of a single image
  const text = ends ? `[${number(ends[0])}, ${number(ends[1])}]` : lacks ? "no bounds" : null;
  const small = text && el("small", { class: "bounds" }, text);
  return el("td", {}, below ? `≥ ${value}` : value, small);
}

// Pages opened from a disk have no clipboard in some browsers: then the command is selected, to be copied by hand.
async function copyCommand({ label, command }) {
  const code = el("code", {}, command), copied = await writeToClipboard(command);
  const hint = copied ? `Copied the command of ${label}: ` : `Copy the selected command of ${label}: `;
  at("copied").replaceChildren(hint, code);
  if (!copied) getSelection().selectAllChildren(code);
}

async function writeToClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

function commandCell(row) {
  const name = `Copy the command of ${row.label}`;
  return el("td", {}, row.command && el("button", { class: "copy", "aria-label": name, onclick: () => copyCommand(row) }, "copy"));
}

function drawTable() {
  const shown = tableKeys(), hasCommands = rows.some(row => row.command);
  at("column-tips").replaceChildren();
  const head = el("tr", {}, plainHeading("setting", ABOUT_SETTING), ...shown.map(heading),
    hasCommands ? plainHeading("command", ABOUT_COMMAND) : null);
  const lines = sortedRows().map(index => {
    const button = el("button", { "data-row": index, onclick: () => choose({ row: index }) }, ...breakable(rows[index].label));
    const marks = el("small", { class: "marks" }, rows[index].marks);
    const cells = shown.map(column => cell(rows[index], column));
    return el("tr", { "data-row": index }, el("th", { scope: "row" }, button, marks), ...cells,
      hasCommands ? commandCell(rows[index]) : null);
  });
  at("table").replaceChildren(el("thead", {}, head), el("tbody", {}, ...lines));
  markTable();
}

function markTable() {
  for (const line of at("table").querySelectorAll("tbody tr")) line.className = rowClasses(+line.dataset.row).join(" ");
}

at("all-columns").addEventListener("change", drawTable);
whenChosen(markTable);
drawTable();
