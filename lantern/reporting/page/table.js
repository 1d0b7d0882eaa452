// The settings as a table. A heading sorts: best first, then the other way round, then as measured.
const sorting = { key: null, down: false };
const tableKeys = () => columns.filter(column => column.shown || at("all-columns").checked);

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

function heading(column) {
  const direction = sorting.key !== column.key ? "none" : sorting.down ? "descending" : "ascending";
  const button = el("button", { "data-key": column.key, title: column.meaning, onclick: () => sortBy(column) }, column.title);
  return el("th", { scope: "col", "aria-sort": direction }, button);
}

function cell(row, column) {
  const ends = bounds(row, column.key);
  const small = ends && el("small", { class: "bounds" }, `[${number(ends[0])}, ${number(ends[1])}]`);
  return el("td", {}, number(valueOf(row, column.key)), small);
}

function drawTable() {
  const shown = tableKeys();
  const head = el("tr", {}, el("th", { scope: "col" }, "setting"), ...shown.map(heading));
  const lines = sortedRows().map(index => {
    const button = el("button", { "data-row": index, onclick: () => choose({ row: index }) }, rows[index].label);
    const marks = el("small", { class: "marks" }, rows[index].marks);
    const cells = shown.map(column => cell(rows[index], column));
    return el("tr", { "data-row": index }, el("th", { scope: "row" }, button, marks), ...cells);
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
