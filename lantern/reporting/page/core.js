// What every part of the page uses: the content, elements, numbers as text, and listeners to the reader's choices.
const content = JSON.parse(document.getElementById("content").textContent);
const { rows, columns, prompts, pictures } = content;
const byKey = Object.fromEntries(columns.map(column => [column.key, column]));
const at = id => document.getElementById(id);
const phone = window.matchMedia("(max-width: 34rem)");

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.filter(child => child != null));
  return node;
}
const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// A name that may be broken over two lines after a dot or an underscore.
const breakable = name => name.split(/(?<=[._])/).flatMap((part, i) => (i ? [el("wbr"), part] : [part]));

function number(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  if (size >= 10 && (Number.isInteger(value) || size >= 1000)) return value.toFixed(0);
  return size && size < 0.1 ? value.toPrecision(2) : value.toFixed(2);
}
const percent = share => `${(100 * share).toFixed(share && share < 0.1 ? 1 : 0)} %`;
const valueOf = (row, key) => (typeof row.values[key] === "number" ? row.values[key] : null);
function bounds(row, key) {
  const [low, high] = [valueOf(row, `${key}_low`), valueOf(row, `${key}_high`)];
  return low == null || high == null ? null : [low, high];
}
// Orders indices of rows, the largest first: by the lower bound, since a noisy point may lie far above its true value;
// rows without bounds come last.
const byLowerBound = key => (a, b) => {
  const [low, other] = [a, b].map(index => bounds(rows[index], key)?.[0]);
  if ((low == null) !== (other == null)) return low == null ? 1 : -1;
  return (other ?? valueOf(rows[b], key) ?? 0) - (low ?? valueOf(rows[a], key) ?? 0);
};
function withBounds(row, key) {
  const ends = bounds(row, key);
  return number(valueOf(row, key)) + (ends ? ` [${number(ends[0])}, ${number(ends[1])}]` : "");
}

// The setting whose details are shown, at first the best one; the prompt whose images are shown; the best setting under
// the reader's budget.
const choice = { row: content.best?.row ?? Math.max(0, rows.findIndex(row => !row.baseline)), prompt: 0, best: null };
const listeners = [];
const whenChosen = listener => listeners.push(listener);
function choose(change) {
  Object.assign(choice, change);
  for (const listener of listeners) listener(Object.keys(change));
}
const rowClasses = index => [index === choice.row ? "chosen" : "", index === choice.best ? "best" : ""];

function picker(name, options, chosen, change) {
  const items = options.map(([value, text]) => el("option", { value, selected: String(value) === String(chosen) }, text));
  return el("label", {}, name, el("select", { onchange: event => change(event.target.value) }, ...items));
}

// Draws a part of the page anew; the control that had the keyboard's focus has it again.
function redraw(place, ...content) {
  const controls = () => [...place.querySelectorAll("button, select, input")];
  const focused = controls().indexOf(document.activeElement);
  place.replaceChildren(...content);
  controls()[focused]?.focus();
}

at("note").textContent = content.note;
const warn = (place, lines) => place.replaceChildren(...lines.map(line => el("p", { class: "warning" }, line)));
warn(at("warnings"), content.warnings);

// On paper every record is expanded; afterwards the page is as it was.
let closedOnScreen = [];
addEventListener("beforeprint", () => {
  closedOnScreen = [...document.querySelectorAll("details:not([open])")];
  for (const part of closedOnScreen) part.open = true;
});
addEventListener("afterprint", () => { for (const part of closedOnScreen) part.open = false; });
