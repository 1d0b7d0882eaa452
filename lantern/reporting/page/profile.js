// Where one setting's speed comes from: a map of every setting to choose from, then its details.
const profiled = rows.map((_, index) => index).filter(index => rows[index].profile);
const ratios = tally => tally.judged.map((judged, i) => (judged ? tally.accepted[i] / judged : null));
const total = list => list.reduce((sum, value) => sum + value, 0);
const drafts = index => total(rows[index].profile.position.judged) > 0;
const drafting = profiled.filter(drafts);

// One scale for all settings, from the second percentile of all cells to the highest.
const cells = drafting.flatMap(index => ratios(rows[index].profile.position)).filter(value => value != null).sort((a, b) => a - b);
const [least, most] = [cells[Math.floor(0.02 * cells.length)] ?? 0, cells.at(-1) ?? 1];
const onScale = shares => shares.map(share => share == null ? null : most > least ? (share - least) / (most - least) : 1);

function mapButton(index) {
  const { grid, position } = rows[index].profile, canvas = el("canvas", { "aria-hidden": true });
  paint(canvas, grid, onScale(ratios(position)));
  const share = total(position.accepted) / total(position.judged);
  return el("button", { type: "button", "data-row": index, onclick: () => choose({ row: index }) }, canvas,
    rows[index].label, el("span", {}, `${percent(share)} accepted`));
}

function tallyBars(tally, name, label) {
  return tally.judged.map((judged, i) => ({
    label: label(i), share: judged ? tally.accepted[i] / judged : null, count: judged,
    text: judged ? `${name} ${label(i)}: ${percent(tally.accepted[i] / judged)} of ${judged}` : "",
  })).filter((bar, i, all) => all.slice(i).some(later => later.count));
}

function panel(title, note, ...parts) {
  return el("div", {}, el("h4", {}, title), note && el("p", { class: "quiet" }, note), ...parts.flat());
}

function acceptanceMap(profile) {
  const shares = ratios(profile.position), { judged, accepted } = profile.position;
  const tell = cell => (judged[cell] ? `${percent(shares[cell])} of ${judged[cell]} decisions accepted a draft token` : "never drafted");
  return panel("Over the image", "share of decisions that accept a draft token; one colour scale for all settings", el("div", { class: "map" }, ...heatMap(profile.grid, onScale(shares), "Acceptance over the image grid", tell)),
    scaleBar(percent(least), percent(most)));
}

function entropyMap(profile) {
  const bits = profile.entropy_bits, [low, high] = [Math.min(...bits), Math.max(...bits)];
  const shares = bits.map(value => (high > low ? (value - low) / (high - low) : 0));
  return panel("Entropy of the target's law", `in bits, mean of ${profile.entropy_images} images`,
    el("div", { class: "map" }, ...heatMap(profile.grid, shares, "Entropy over the image grid", cell => `${number(bits[cell])} bits`)),
    scaleBar(number(low), number(high)));
}

function roundBars(profile) {
  const list = profile.committed.map((count, tokens) => ({
    label: String(tokens), share: count / profile.rounds, count, text: `${tokens} tokens: ${percent(count / profile.rounds)} of rounds` }));
  return panel("Tokens committed per round", "% of rounds", bars(list.slice(1), `${profile.rounds} rounds of ${profile.images} images`));
}

function details(index) {
  const { profile, label } = rows[index], panels = [];
  if (drafts(index)) panels.push(acceptanceMap(profile));
  if (profile.entropy_bits.length) panels.push(entropyMap(profile));
  panels.push(roundBars(profile));
  if (drafts(index)) {
    const by = (tally, name, first) => bars(tallyBars(tally, name, i => String(i + first)), "faint bars: fewer than 30 decisions");
    panels.push(panel("By depth", "% of decisions that accept a draft token, by its level below the root", by(profile.depth, "level", 1)));
    panels.push(panel("By rank", "% of children accepted after all earlier siblings were rejected, by place among the siblings", by(profile.rank, "rank", 1)));
    if (total(profile.entropy.judged)) panels.push(panel("By entropy",
      `% of decisions that accept a draft token, by the entropy of the target's law in bits, rounded down; ${profile.entropy_images} images`, by(profile.entropy, "bits", 0)));
  }
  return [el("h3", {}, label), el("div", { class: "panels" }, ...panels), drafts(index) ? treeFigure(profile) : null];
}

function drawDetails() {
  for (const button of at("maps").children) button.setAttribute("aria-pressed", +button.dataset.row === choice.row);
  const shown = rows[choice.row]?.profile ? choice.row : null;
  at("details").replaceChildren(...(shown == null ? [el("p", {}, "No rounds were recorded for this setting.")] : details(shown)).filter(Boolean));
}
