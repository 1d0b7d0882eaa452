// The form, the stream of rounds, the figures under both images and the verdict. All text goes through textContent.
import { Grid, calm } from "./grid.js";

const $ = selector => document.querySelector(selector);
const FRAME_MS = 16, CALM_MS = 500; // between two drawings; the latter where reduced motion is asked for

class Side {
  constructor(section) {
    Object.assign(this, { section, select: section.querySelector("select"), canvas: section.querySelector("canvas") });
    this.grid = new Grid(this.canvas);
    this.figures = {};
    for (const [key, label] of [["committed", "tokens"], ["rate", "tokens a step"], ["seconds", "in decoding"]])
      this.figures[key] = this.figure(label);
    this.others = document.createElement("div");
    this.others.className = "others";
    section.querySelector("dl").append(this.others);
  }

  figure(label) {
    const [line, value, name] = ["div", "dd", "dt"].map(tag => document.createElement(tag));
    [name.textContent, value.textContent] = [label, "–"];
    line.append(name, value);
    this.section.querySelector("dl").append(line);
    return value;
  }

  offer(methods, chosen) {
    this.methods = methods;
    for (const [key, { label }] of Object.entries(methods)) this.select.append(new Option(label, key));
    this.select.value = chosen;
    this.select.addEventListener("change", () => this.describe());
    this.describe();
  }

  describe() { this.section.querySelector(".note").textContent = this.methods[this.select.value].note }
  get label() { return this.methods[this.select.value].label }

  clear(shape) {
    this.total = shape[0] * shape[1];
    clearTimeout(this.timer);
    this.timer = this.round = null;
    this.grid.clear(shape);
    this.canvas.ariaLabel = "no image yet";
    for (const value of Object.values(this.figures)) value.textContent = "–";
    this.others.textContent = "";
    this.section.querySelector(".bar i").style.width = "0";
    this.running(false);
  }

  start({ lossless, coupled }) {
    Object.assign(this, { lossless, coupled });
    this.running(true);
  }

  running(is) { this.section.classList.toggle("running", is) }

  show(round) { // of rounds that come faster than frames the last one is drawn
    this.round = round;
    this.grid.show(round);
    this.timer ??= setTimeout(() => this.draw(), calm.matches ? CALM_MS : FRAME_MS);
  }

  draw() {
    clearTimeout(this.timer);
    this.timer = null;
    this.grid.draw();
    const { round } = this, done = round.committed === this.total;
    this.figures.committed.textContent = `${round.committed} / ${this.total}`;
    this.figures.rate.textContent = round.steps ? round.tokens_per_step.toFixed(2) : "–";
    this.figures.seconds.textContent = `${round.seconds.toFixed(2)} s`;
    this.section.querySelector(".bar i").style.width = `${100 * round.committed / this.total}%`;
    this.canvas.ariaLabel = done ? `the finished image of ${this.label}` : `image of ${this.label}, being decoded`;
  }

  complete({ other_cores: cores }) {
    this.draw();
    this.running(false);
    if (cores > .3) this.others.textContent = `Other programs kept ${cores.toFixed(1)} cores busy meanwhile: the time is too high.`;
  }
}

const sides = [...document.querySelectorAll(".side")].map(section => new Side(section));
let shape = [16, 16], dtype = "", leaving = null;

function say(selector, text) {
  $(selector).textContent = text;
  $(selector).hidden = !text;
}
const fail = message => say("#message", message);

// One speed in words, of the second side over the first, or of a method over plain decoding: never as a multiple of the
// slower one, which would read as a gain.
function compared([left, right]) {
  const [other, own] = right.select.value === "plain" ? [right, left] : [left, right];
  const ratio = other.round.seconds / own.round.seconds;
  const times = ratio >= 1 ? `${ratio.toFixed(2)} times as fast as` : `slower, with ${(100 * ratio).toFixed(0)} % of the speed of`;
  return `${own.label} (${own.round.seconds.toFixed(2)} s) is ${times} ${other.label} (${other.round.seconds.toFixed(2)} s) on this image.`;
}

function verdict({ different, total }) {
  const same = !different.length, [line, told, time] = ["p", "b", "p"].map(tag => document.createElement(tag));
  const lossy = [...new Set(sides.filter(side => !side.lossless).map(side => side.label))];
  const areDraws = !sides.every(side => side.coupled), isRounding = !same && !lossy.length;
  told.textContent = same ? "The two images are the same, token for token." : `${different.length} of ${total} tokens differ.`;
  told.className = same ? "same" : isRounding ? "" : "differ";
  if (isRounding)
    line.append(areDraws ? "Both methods are lossless, and their images are two draws from one law. " : `Both methods are lossless, and ${dtype} rounds passes of different widths differently: behind the first near ` +
      "tie that this decides, images part. With dtype=float32 they are the same. ");
  line.append(told);
  if (lossy.length) line.append(` ${lossy.join(" and ")} ${lossy.length > 1 ? "are" : "is"} lossy: other images, for speed.`);
  time.textContent = compared(sides);
  $("#verdict").replaceChildren(line, time);
  $("#mark").hidden = same;
  $("#mark input").checked = false;
  $("#mark input").onchange = event => {
    const equal = [...Array(total).keys()].filter(position => !different.includes(position));
    for (const { grid } of sides) {
      grid.dimmed = event.target.checked ? equal : [];
      grid.draw();
    }
  };
}

function take(event) {
  const side = sides[event.side];
  if (event.event === "start") side.start(event), say("#told", event.told);
  if (event.event === "round") side.show(event);
  if (event.event === "complete") side.complete(event);
  if (event.event === "verdict") verdict(event);
  if (event.event === "error") fail(event.message);
}

async function lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = "", last = null; ;) {
    const { value, done } = await reader.read();
    if (done) {
      if (!["verdict", "error"].includes(last)) fail("The server has ended the comparison.");
      return;
    }
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    for (const line of whole) {
      const event = JSON.parse(line);
      last = event.event;
      take(event);
    }
  }
}

function busy(is) {
  const focused = document.activeElement === $(is ? "#run" : "#stop");
  $("#run").hidden = is;
  $("#stop").hidden = !is;
  if (focused) $(is ? "#stop" : "#run").focus();
  for (const { select } of sides) select.disabled = is;
}

async function compare() {
  if (leaving) return;
  leaving = new AbortController();
  fail("");
  say("#told", "");
  $("#verdict").textContent = "Decoding, one after the other …";
  $("#mark").hidden = true;
  for (const side of sides) side.clear(shape);
  busy(true);
  const request = {
    prompt: $("#prompt").value, methods: sides.map(side => side.select.value),
    seed: Number($("#seed").value),
  };
  try {
    await lines(await fetch("compare", {
      method: "POST", signal: leaving.signal, body: JSON.stringify(request),
      headers: { "Content-Type": "application/json" },
    }));
  } catch (error) {
    fail(leaving.signal.aborted ? "Stopped." : "The server does not answer; is python -m lantern still running?");
  }
  for (const side of sides) side.running(false);
  if (!$("#verdict b")) $("#verdict").textContent = "";
  leaving = null;
  busy(false);
}

async function begin() {
  const setup = await (await fetch("setup")).json(), names = Object.keys(setup.methods);
  [shape, dtype] = [setup.grid, setup.dtype];
  $("#model").textContent = setup.model;
  $("#dtype").textContent = dtype;
  for (const side of sides) side.clear(shape);
  $("#prompt").value = setup.examples[0];
  $("#examples").replaceChildren(...setup.examples.map(text => {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", textContent: text });
    button.onclick = () => { $("#prompt").value = text; compare() };
    return button;
  }));
  $("#vocabulary").hidden = !setup.words.length;
  $("#words").textContent = setup.words.join(" ");
  sides.forEach((side, index) => side.offer(setup.methods, names[index]));
  $("#form").addEventListener("submit", event => { event.preventDefault(); compare() });
  $("#stop").addEventListener("click", () => leaving?.abort());
}

begin().catch(() => fail("The server does not answer; is python -m lantern still running?"))
  .finally(() => { $("#verdict").textContent = "" });
