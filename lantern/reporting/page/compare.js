// The same prompt and seed under every setting, and two settings in detail. Slider, flip and difference are offered only
// where both settings share their noise: then every difference between the images comes from the method.
const seen = rows.map((_, index) => index).filter(index => pictures[index]?.length);
const fastest = seen.filter(index => !rows[index].baseline).sort(byLowerBound("speedup"))[0];
const pair = { left: seen[0], right: fastest ?? seen[0], mode: "side by side", flipped: false, seam: 50 };
const MODES = ["side by side", "slider", "flip", "difference"];
const seeds = [...new Set(seen.map(index => rows[index].values.seed ?? "unknown"))].join(", "); // as the user gave them
const sharesNoise = () => rows[pair.left].noise && rows[pair.left].noise === rows[pair.right].noise;

function image(index) {
  const { text, copy } = prompts[choice.prompt];
  return el("img", { src: pictures[index][choice.prompt].src, alt: `${rows[index].label}: ${text}, copy ${copy}` });
}

function caption(index) {
  const row = rows[index], times = valueOf(row, "speedup");
  const same = index !== seen[0] && pictures[index][choice.prompt].same;
  return el("figcaption", {}, el("b", {}, row.label), times == null ? "" : ` ${number(times)}×`,
    same ? el("span", { class: "same" }, ` same tokens as ${rows[seen[0]].label}`) : null);
}

function drawPromptOptions() {
  const step = by => choose({ prompt: (choice.prompt + by + prompts.length) % prompts.length });
  const options = prompts.map(({ text, copy }, index) => [index, copy ? `${text} (copy ${copy})` : text]);
  redraw(at("prompt-options"),
    picker("prompt", options, choice.prompt, index => choose({ prompt: +index })),
    el("button", { type: "button", onclick: () => step(-1) }, "← previous"),
    el("button", { type: "button", onclick: () => step(1) }, "next →"),
    el("span", { class: "quiet" }, `seed ${seeds}`));
}

function drawGallery() {
  at("gallery").replaceChildren(...seen.map(index => el("figure", { "data-row": index }, image(index), caption(index))));
}

function drawPairOptions() {
  const options = seen.map(index => [index, rows[index].label]);
  const side = name => picker(name, options, pair[name], index => { pair[name] = +index; drawPair(); });
  const modes = MODES.map(mode => el("label", {}, el("input", {
    type: "radio", name: "mode", value: mode, checked: mode === pair.mode, disabled: mode !== MODES[0] && !sharesNoise(),
    onchange: () => { pair.mode = mode; drawPair(); },
  }), mode));
  redraw(at("pair-options"), side("left"), side("right"), el("fieldset", { "aria-label": "How to compare" }, ...modes));
}

function sliderView() {
  const upper = image(pair.right), seam = el("div", { class: "seam" });
  const move = value => {
    pair.seam = value;
    upper.style.clipPath = `inset(0 0 0 ${value}%)`;
    seam.style.left = `${value}%`;
  };
  move(pair.seam);
  const range = el("input", { type: "range", min: 0, max: 100, value: pair.seam, "aria-label": "Position of the divider",
    oninput: event => move(+event.target.value) });
  return el("figure", {}, el("div", { class: "stack" }, image(pair.left), upper, seam), range,
    el("figcaption", {}, `left ${rows[pair.left].label}, right ${rows[pair.right].label}`));
}

function flipView() {
  const shown = pair.flipped ? pair.right : pair.left;
  const flip = () => { pair.flipped = !pair.flipped; drawPair(); };
  return el("figure", {}, el("div", { class: "stack" }, image(shown)),
    el("figcaption", {}, el("button", { type: "button", onclick: flip }, "flip"), " ", caption(shown)));
}

function pairView() {
  if (pair.mode === "slider") return sliderView();
  if (pair.mode === "flip") return flipView();
  if (pair.mode === "difference")
    return el("figure", {}, el("div", { class: "stack difference" }, image(pair.left), image(pair.right)),
      el("figcaption", {}, "absolute difference, brightness times three; black where the images agree"));
  return el("div", { class: "beside" }, ...[pair.left, pair.right].map(i => el("figure", {}, image(i), caption(i))));
}

function drawPair() {
  if (!sharesNoise()) pair.mode = MODES[0];
  drawPairOptions();
  const exact = [pair.left, pair.right].every(i => rows[i].baseline || rows[i].values.lossless);
  at("pair-note").textContent = sharesNoise() ? "Both settings share their noise: every difference comes from " +
    (exact ? "rounding, since both are lossless; in float32 the images are the same." : "the method.") :
    "These two do not share their noise: their images are independent samples, which no pixel-wise view can compare.";
  redraw(at("pair"), pairView());
}

if (seen.length && prompts.length) {
  const draw = () => { drawPromptOptions(); drawGallery(); drawPair(); };
  whenChosen(changed => { if (changed.includes("prompt")) draw(); });
  draw();
} else at("images").hidden = true;
