// Colours of shares, heat maps, and bars.
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
function colour(share) {
  const place = Math.max(0, Math.min(1, share)) * (STOPS.length - 1), below = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[below].map((value, i) => Math.round(value + (place - below) * (STOPS[below + 1][i] - value)));
}
const css = share => `rgb(${colour(share).join(" ")})`;

// values: a share of 0 to 1 or null a cell, row by row.
function paint(canvas, [height, width], values) {
  Object.assign(canvas, { width, height });
  const pen = canvas.getContext("2d"), pixels = pen.createImageData(width, height);
  values.slice(0, width * height).forEach((value, cell) => {
    if (value != null) pixels.data.set([...colour(value), 255], 4 * cell);
  });
  pen.putImageData(pixels, 0, 0);
}

function scaleBar(low, high) {
  const bar = el("i");
  bar.style.background = `linear-gradient(to right, ${STOPS.map(stop => `rgb(${stop.join(" ")})`).join(", ")})`;
  return el("div", { class: "scale" }, low, bar, high);
}

// A map that describes the cell under the pointer, or the one reached with the arrow keys.
function heatMap(grid, values, name, tell) {
  const [height, width] = grid, canvas = el("canvas", { tabindex: 0, role: "img", "aria-label": `${name}; arrow keys move from cell to cell` });
  const told = el("div", { class: "told", "aria-live": "polite" }), place = [0, 0];
  const say = () => { told.textContent = `row ${place[0] + 1}, column ${place[1] + 1}: ${tell(place[0] * width + place[1])}`; };
  canvas.addEventListener("mousemove", event => {
    const box = canvas.getBoundingClientRect();
    place[0] = Math.min(height - 1, Math.max(0, Math.floor(((event.clientY - box.top) / box.height) * height)));
    place[1] = Math.min(width - 1, Math.max(0, Math.floor(((event.clientX - box.left) / box.width) * width)));
    say();
  });
  canvas.addEventListener("keydown", event => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step) return;
    event.preventDefault();
    place[0] = Math.min(height - 1, Math.max(0, place[0] + step[0]));
    place[1] = Math.min(width - 1, Math.max(0, place[1] + step[1]));
    say();
  });
  paint(canvas, grid, values);
  return [canvas, told];
}

// bars: {label, share or null, count, text}; rare ones are drawn faint.
function bars(list, told) {
  const highest = Math.max(...list.map(bar => bar.share ?? 0)) || 1;
  const items = list.map(bar => {
    const body = el("i");
    body.style.height = `${(82 * (bar.share ?? 0)) / highest}%`;
    const tight = list.length > 12;
    const item = el("li", { class: bar.count < 30 ? "rare" : "", title: bar.text }, tight || bar.share == null ? "" : percent(bar.share).replace(" %", ""), body);
    return item;
  });
  const feet = list.map((bar, i) => el("li", {}, list.length <= 16 || i % 4 === 0 ? bar.label : ""));
  const summary = list.filter(bar => bar.share != null).map(bar => bar.text).join("; ");
  return [el("ul", { class: "bars", role: "img", "aria-label": summary }, ...items), el("ul", { class: "feet", "aria-hidden": true }, ...feet),
    el("div", { class: "told" }, told)];
}
