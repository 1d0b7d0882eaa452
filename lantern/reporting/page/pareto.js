// Speed against quality: one point per setting with its 95 % bars, the front, and the fastest setting within a budget.
const speeds = columns.filter(column => column.kind === "speed" && column.better === "high");
const qualities = columns.filter(column => column.kind !== "speed" && column.better);
const axes = { x: speeds[0]?.key, y: (qualities.findLast(column => column.plotted) ?? qualities[0])?.key, within: 10 };
const MARGIN = { top: 14, right: 18, bottom: 46, left: 58 };

// Plain decoding and lossless methods lose nothing of its law, whatever an estimate says that has a floor.
const keeps = (row, key) => (row.baseline || row.values.lossless) && byKey[key].kind === "law" && byKey[key].better === "low";
const place = (row, key) => (keeps(row, key) ? 0 : valueOf(row, key));
const interval = (row, key) => (keeps(row, key) ? null : bounds(row, key));
const told = (row, key) => (keeps(row, key) ? "0 (lossless)" : withBounds(row, key));

// The rows that were timed and judged. A metric of other numbers of images does not compare: the most common stays.
function plotted() {
  const found = rows.map((_, i) => i).filter(i => [axes.x, axes.y].every(key => place(rows[i], key) != null));
  if (byKey[axes.y].kind !== "images") return found;
  const number = index => rows[index].values.num_images ?? 0;
  const count = most => found.filter(i => !rows[i].baseline && number(i) === most).length;
  const [most] = found.map(number).sort((a, b) => count(b) - count(a) || b - a);
  return found.filter(i => number(i) === most);
}
const isRanked = index => rows[index].values.ranked !== false;
const isBetter = (a, b) => (byKey[axes.y].better === "high" ? a > b : a < b);

function front(points) {
  const order = points.filter(isRanked).sort((a, b) => place(rows[b], axes.x) - place(rows[a], axes.x));
  const kept = [];
  for (const index of order)
    if (!kept.length || isBetter(place(rows[index], axes.y), place(rows[kept.at(-1)], axes.y))) kept.push(index);
  return kept;
}

// Plain decoding's quality with a row's sampling: by its paired difference, else as in the first baseline.
function plainOf(row) {
  const value = place(row, axes.y), more = valueOf(row, `${axes.y}_diff`), less = valueOf(row, `${axes.y}_loss`);
  if (row.baseline) return value;
  if (more != null) return value - more;
  return less != null ? value + less : firstPlain();
}
const firstPlain = () => place(rows[plotted().find(i => rows[i].baseline)] ?? { values: {} }, axes.y);

// Of a figure that is 0 for plain decoding, as output TV is, the share is one of 1.
function limit(plain) {
  const slack = ((Math.abs(plain) || 1) * axes.within) / 100;
  return byKey[axes.y].better === "high" ? plain - slack : plain + slack;
}

const isInside = row => row.baseline || row.values.lossless || !isBetter(limit(plainOf(row)), valueOf(row, axes.y));

// The reader's budget, of the metric that is drawn.
function tellBudget() {
  const known = firstPlain() != null;
  const [best] = known ? plotted().filter(i => isRanked(i) && isInside(rows[i])).sort(byLowerBound(axes.x)) : [];
  const row = rows[best], why = row && bounds(row, axes.x) ? ", the largest lower bound" : "";
  const line = row ? `${row.label}: ${byKey[axes.x].title} ${withBounds(row, axes.x)}${why}` : "none";
  const title = byKey[axes.y].title, plain = firstPlain();
  const rule = plain ? `within ${axes.within} % of plain decoding's ${title}` : `with ${title} at most ${limit(plain)}`;
  tellBest(best, known && `lossless or ${rule}`, line);
}

function tellBest(best, rule, line) {
  const price = best == null ? "" : ` Its ${byKey[axes.y].title}: ${told(rows[best], axes.y)}.`;
  const doubt = content.best && !content.best.is_faster ? " No setting is proven faster than plain decoding." : "";
  at("budget").textContent = rule ? `Fastest, ${rule} (★): ${line}.${price}${doubt}` : "";
  choose({ best: best ?? null });
}

function ticks(low, high, count) {
  const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(times => times * power >= rough);
  const found = [];
  for (let tick = Math.ceil(low / step) * step; tick <= high + step * 1e-6; tick += step) found.push(+tick.toPrecision(10));
  return found;
}

// Values set the axis, and bounds near them: wider ones end at its edge. Where all values are 0, those of lossless
// methods alone, it ends at 0.1.
function scale(points, key, from, end) {
  const values = points.map(i => place(rows[i], key)), ends = points.flatMap(i => interval(rows[i], key) ?? []);
  const least = Math.min(...values), most = values.some(Boolean) ? Math.max(...values) : 0.1;
  const span = most - least || Math.abs(most);
  const low = Math.max(Math.min(least, ...ends), least - span / 2) - 0.06 * span;
  const high = Math.min(Math.max(most, ...ends), most + span / 2) + 0.06 * span;
  const to = value => from + ((Math.max(low, Math.min(high, value)) - low) / (high - low)) * (end - from);
  return { low, high, to };
}

const shortly = tick => (tick && Math.abs(tick) < 1e-4 ? tick.toExponential() : String(tick));

function axisMarks(x, y, width, height, images) {
  const bottom = height - MARGIN.bottom, marks = [];
  for (const tick of ticks(x.low, x.high, Math.max(3, width / 110))) {
    marks.push(svg("line", { class: "rule", x1: x.to(tick), x2: x.to(tick), y1: MARGIN.top, y2: bottom }));
    marks.push(svg("text", { class: "tick", x: x.to(tick), y: bottom + 18, "text-anchor": "middle" }, shortly(tick)));
  }
  for (const tick of ticks(y.low, y.high, 5)) {
    marks.push(svg("line", { class: "rule", x1: MARGIN.left, x2: width - MARGIN.right, y1: y.to(tick), y2: y.to(tick) }));
    marks.push(svg("text", { class: "tick", x: MARGIN.left - 8, y: y.to(tick) + 4, "text-anchor": "end" }, shortly(tick)));
  }
  const [across, up] = [axes.x, axes.y].map(key => byKey[key]);
  const down = up.better === "low" ? "lower" : "higher";
  marks.push(svg("text", { x: width - MARGIN.right, y: height - 8, "text-anchor": "end" }, `${across.title}: right is faster`));
  const turned = `rotate(-90) translate(${-MARGIN.top} 14)`;
  const judged = up.kind === "images" && images ? `, ${images} images` : "";
  marks.push(svg("text", { transform: turned, "text-anchor": "end" }, `${up.title}${judged}: ${down} is better`));
  return marks;
}

function pointMark(index, x, y) {
  const row = rows[index], [px, py] = [x.to(place(row, axes.x)), y.to(place(row, axes.y))];
  const [across, up] = [interval(row, axes.x), interval(row, axes.y)];
  const name = `${row.label}: ${byKey[axes.x].title} ${withBounds(row, axes.x)}, ${byKey[axes.y].title} ${told(row, axes.y)}`;
  const group = svg("g", { class: `point${row.baseline ? " plain" : ""}${isRanked(index) ? "" : " pale"}`, tabindex: 0, role: "button", "aria-label": name, "data-row": index },
    across && svg("line", { class: "bar", x1: x.to(across[0]), x2: x.to(across[1]), y1: py, y2: py }),
    up && svg("line", { class: "bar", x1: px, x2: px, y1: y.to(up[0]), y2: y.to(up[1]) }),
    svg("circle", { class: "reach", cx: px, cy: py, r: 16 }),
    svg("circle", { class: "dot", cx: px, cy: py, r: 7 }));
  const show = () => showTip(index, px, py);
  for (const [name, act] of [["mouseenter", show], ["focus", show], ["mouseleave", hideTip], ["blur", hideTip]])
    group.addEventListener(name, act);
  group.addEventListener("click", () => choose({ row: index }));
  group.addEventListener("keydown", event => {
    if (event.key === "Escape") hideTip();
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose({ row: index }); }
  });
  return { group, px, py, label: row.label };
}

function pointLabels(marks, width) {
  const taken = marks.map(({ px, py }) => [px - 9, py - 9, px + 9, py + 9]);
  const clear = box => box[0] > MARGIN.left && box[2] < width && !taken.some(other =>
    box[0] < other[2] && other[0] < box[2] && box[1] < other[3] && other[1] < box[3]);
  return marks.flatMap(({ px, py, label }) => {
    const size = 7.2 * label.length;
    for (const [dx, dy, anchor] of [[12, -8, "start"], [12, 16, "start"], [-12, -8, "end"], [-12, 16, "end"], [0, -16, "middle"], [0, 26, "middle"]]) {
      const left = px + dx - (anchor === "end" ? size : anchor === "middle" ? size / 2 : 0);
      const box = [left, py + dy - 12, left + size, py + dy + 4];
      if (!clear(box)) continue;
      taken.push(box);
      return [svg("text", { x: px + dx, y: py + dy, "text-anchor": anchor, "pointer-events": "none" }, label)];
    }
    return [];  // no room: the label is in the tooltip
  });
}

function drawPareto() {
  const points = plotted(), space = at("pareto");
  if (!points.length) return space.replaceChildren(el("p", {}, "No setting has both a speed and a quality figure."));
  const width = Math.max(300, space.clientWidth), height = Math.max(300, Math.min(460, width * 0.6));
  const x = scale(points, axes.x, MARGIN.left, width - MARGIN.right);
  const y = scale(points, axes.y, height - MARGIN.bottom, MARGIN.top);
  const marks = points.map(index => pointMark(index, x, y));
  const line = front(points).map(i => `${x.to(place(rows[i], axes.x))},${y.to(place(rows[i], axes.y))}`).join(" ");
  const end = rows.filter(row => row.baseline).length === 1 && firstPlain() != null ? limit(firstPlain()) : null;
  const seen = end != null && end > y.low && end < y.high;
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "Speed against quality, one point per setting" },
    ...axisMarks(x, y, width, height, rows[points[0]].values.num_images), svg("polyline", { class: "front", points: line }),
    seen ? svg("line", { class: "limit", x1: MARGIN.left, x2: width - MARGIN.right, y1: y.to(end), y2: y.to(end) }) : null,
    ...marks.map(mark => mark.group), ...pointLabels(marks, width));
  const isPale = !points.every(isRanked), pale = "Pale: not ranked, since plain decoding was timed otherwise than for the others.";
  space.replaceChildren(drawing, el("div", { class: "tip", id: "tip", hidden: true, role: "tooltip" }), ...(isPale ? [el("p", { class: "quiet" }, pale)] : []));
  warn(at("doubts"), content.warnings.filter(line => line.includes(byKey[axes.y].title)));
  markPoints();
}

function markPoints() {
  for (const point of document.querySelectorAll("#pareto .point")) {
    const [chosen, best] = rowClasses(+point.dataset.row);
    point.classList.toggle("chosen", !!chosen);
    point.classList.toggle("best", !!best);
  }
}

function showTip(index, px, py) {
  const tip = at("tip"), row = rows[index], picture = pictures[index]?.[choice.prompt];
  const keys = new Set([axes.x, axes.y, ...columns.filter(c => c.shown).map(c => c.key)]);
  const told = [...keys].filter(key => valueOf(row, key) != null).slice(0, phone.matches ? 3 : 6).map(key => byKey[key]);
  tip.replaceChildren(el("b", {}, row.label),
    el("dl", {}, ...told.flatMap(c => [el("dt", {}, c.title), el("dd", {}, withBounds(row, c.key))])),
    picture ? el("img", { src: picture.src, alt: prompts[choice.prompt].text }) : null,
    picture ? el("span", { class: "quiet" }, prompts[choice.prompt].text) : null);
  tip.hidden = false;
  const room = at("pareto").clientWidth, side = px + 18 + tip.offsetWidth < room ? px + 18 : px - 18 - tip.offsetWidth;
  tip.style.left = `${Math.max(0, Math.min(side, room - tip.offsetWidth))}px`;
  tip.style.top = `${Math.max(0, Math.min(py - tip.offsetHeight / 2, at("pareto").clientHeight - tip.offsetHeight))}px`;
}
function hideTip() { at("tip").hidden = true; }

if (axes.x && axes.y) {
  const update = () => { drawPareto(); tellBudget(); };
  const within = el("input", { type: "number", min: 0, max: 1000, step: 1, value: axes.within, id: "within",
    oninput: event => { axes.within = Math.max(0, +event.target.value || 0); update(); } });
  const named = list => list.map(column => [column.key, column.title]);
  at("trade-options").append(
    picker("speed", named(speeds), axes.x, key => { axes.x = key; update(); }),
    picker("quality", named(qualities), axes.y, key => { axes.y = key; update(); }),
    el("label", {}, "budget: within", within, "% of plain decoding"));
  whenChosen(markPoints);
  drawPareto();
  if (content.best)  // until the reader asks: what the terminal says
    tellBest(content.best.row, `lossless or with ${content.best.budget}`, content.best.line);
  else tellBudget();
  let drawn = at("pareto").clientWidth;
  new ResizeObserver(() => {
    if (drawn !== at("pareto").clientWidth) drawPareto();
    drawn = at("pareto").clientWidth;
  }).observe(at("pareto"));
} else at("pareto").append(el("p", {}, "This plot is of settings that were both timed and judged: there are none."));
