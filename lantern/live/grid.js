// One image on its token grid: pixels of committed tokens, and what the last round drafted and accepted.

const color = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
export const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Grid {
  constructor(canvas) {
    this.canvas = canvas;
    this.picture = document.createElement("canvas");
    this.clear([16, 16]);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  clear([rows, columns]) {
    Object.assign(this, { rows, columns, committed: 0, covered: 0, accepted: 0, drafted: {}, done: false, dimmed: [], fresh: null });
    this.canvas.height = Math.round(this.canvas.width * rows / columns);
    this.draw();
  }

  show({ committed, accepted, drafted, pixels }) { // drawn by the next draw()
    Object.assign(this, { committed, accepted, drafted, done: committed === this.rows * this.columns });
    if (pixels) this.fresh = { pixels, committed };
  }

  paint({ width, height, rgb }) {
    const bytes = atob(rgb), data = new Uint8ClampedArray(width * height * 4).fill(255);
    for (let from = 0, to = 0; from < bytes.length; to += 4)
      for (let channel = 0; channel < 3; channel++) data[to + channel] = bytes.charCodeAt(from++);
    Object.assign(this.picture, { width, height });
    this.picture.getContext("2d").putImageData(new ImageData(data, width, height), 0, 0);
  }

  cell(position) { // [x, y, side] on the canvas
    const side = this.canvas.width / this.columns;
    return [(position % this.columns) * side, Math.floor(position / this.columns) * side, side];
  }

  draw() {
    if (this.fresh) {
      this.paint(this.fresh.pixels);
      this.covered = this.fresh.committed; // positions that the picture was decoded from
      this.fresh = null;
    }
    const context = this.context = this.canvas.getContext("2d");
    context.fillStyle = color("blank");
    context.fillRect(0, 0, this.canvas.width, this.canvas.height);
    this.rule();
    this.fill(this.covered, this.committed, color("waiting"));
    this.place();
    if (!this.done) this.light();
    context.globalAlpha = .8;
    for (const position of this.dimmed) this.fill(position, position + 1, color("ground"));
    context.globalAlpha = 1;
  }

  rule() {
    const { context, canvas } = this, side = canvas.width / this.columns;
    context.strokeStyle = color("blank-line");
    context.beginPath();
    for (let x = side; x < canvas.width - 1; x += side) context.moveTo(x, 0), context.lineTo(x, canvas.height);
    for (let y = side; y < canvas.height - 1; y += side) context.moveTo(0, y), context.lineTo(canvas.width, y);
    context.stroke();
  }

  fill(from, to, style) {
    this.context.fillStyle = style;
    for (let position = from; position < to; position++) {
      const [x, y, side] = this.cell(position);
      this.context.fillRect(x, y, side, side);
    }
  }

  place() { // the picture, where it has been decoded from committed tokens
    if (!this.covered) return;
    const { context, canvas } = this;
    context.save();
    context.beginPath();
    for (let position = 0; position < this.covered; position++) {
      const [x, y, side] = this.cell(position);
      context.rect(x, y, side, side);
    }
    context.clip();
    context.imageSmoothingQuality = "high";
    context.drawImage(this.picture, 0, 0, canvas.width, canvas.height);
    context.restore();
  }

  light() { // the last round
    const own = this.committed - 1, first = own - this.accepted;
    if (!calm.matches) {
      this.context.globalAlpha = .45;
      this.fill(first, own, color("accepted"));
      this.context.globalAlpha = 1;
    }
    for (let position = first; position < own; position++) this.outline(position, color("accepted"), 3);
    if (own >= 0) this.outline(own, "#fff", 6), this.outline(own, color("own"), 4);
    for (const [position, candidates] of Object.entries(this.drafted))
      if (position > own) this.hatch(Number(position), candidates);
  }

  outline(position, style, width) {
    const [x, y, side] = this.cell(position);
    Object.assign(this.context, { strokeStyle: style, lineWidth: width });
    this.context.strokeRect(x + width / 2, y + width / 2, side - width, side - width);
    this.context.lineWidth = 1;
  }

  hatch(position, candidates) {
    const { context } = this, [x, y, side] = this.cell(position), gap = side / 4;
    context.save();
    context.beginPath();
    context.rect(x + 1, y + 1, side - 2, side - 2);
    context.clip();
    Object.assign(context, { strokeStyle: color("drafted"), lineWidth: Math.min(2 + candidates / 2, gap * .8) });
    context.beginPath();
    for (let shift = 0; shift <= 2 * side; shift += gap * 1.4)
      context.moveTo(x + shift, y), context.lineTo(x + shift - side, y + side);
    context.stroke();
    context.restore();
    this.outline(position, color("drafted"), 1.5);
  }
}
