// The draft tree over all rounds: a node is identified by its path of child ranks, not by its tokens.
const DRAWN = 120;

function treeFigure(profile) {
  const shown = profile.tree.slice(0, DRAWN), never = profile.nodes - profile.nodes_accepted;
  const note = `Colour: share of rounds in which the node was accepted; hollow: never accepted. ${never} of ${profile.nodes} nodes ` +
    `were never accepted${shown.length < profile.nodes ? `; shown: the ${shown.length} nodes drafted most often` : ""}.`;
  const told = el("div", { class: "told", "aria-live": "polite" });
  return panel("The tree", note, el("div", { class: "tree" }, treeDrawing(shown, profile.rounds, told)), told, scaleBar("rarely", "every round"));
}

function treePlaces(nodes) {
  const byPath = new Map(nodes.map(node => [node.path.join(), { ...node, children: [] }]));
  for (const node of byPath.values())
    if (node.path.length) byPath.get(node.path.slice(0, -1).join()).children.push(node);
  const root = byPath.get("");
  let next = 0, depth = 0;
  const place = node => {
    node.children.sort((a, b) => a.path.at(-1) - b.path.at(-1)).forEach(child => { child.parent = node; place(child); });
    node.y = node.path.length;
    depth = Math.max(depth, node.y);
    node.x = node.children.length ? (node.children[0].x + node.children.at(-1).x) / 2 : next++;
  };
  place(root);
  return { root, all: [...byPath.values()], leaves: next, depth };
}

function treeDrawing(nodes, rounds, told) {
  const { root, all, leaves, depth } = treePlaces(nodes), [across, down, edge] = [17, 46, 14];
  const width = (leaves - 1) * across + 2 * edge, height = depth * down + 2 * edge;
  const x = node => edge + node.x * across, y = node => edge + node.y * down;
  const lines = all.filter(node => node.parent).map(node => svg("line", {
    x1: x(node.parent), y1: y(node.parent), x2: x(node), y2: y(node), "stroke-width": 1 + (5 * node.accepted) / rounds }));
  let here = root;
  const say = node => {
    here.mark.classList.remove("at");
    here = node;
    here.mark.classList.add("at");
    const name = node.path.length ? `child ranks ${node.path.map(rank => rank + 1).join(" › ")}` : "root";
    told.textContent = `${name}: drafted in ${percent(node.drafted / rounds)} of rounds, accepted in ${percent(node.accepted / rounds)}`;
  };
  for (const node of all) {
    const circle = svg("circle", { cx: x(node), cy: y(node), r: 6 });
    circle.style.fillOpacity = node.accepted ? 1 : 0;
    circle.style.fill = css(Math.sqrt(node.accepted / rounds));
    circle.style.opacity = 0.35 + (0.65 * node.drafted) / rounds;
    node.mark = svg("g", {}, circle);
    node.mark.addEventListener("mouseenter", () => say(node));
  }
  const drawing = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, tabindex: 0, role: "img", "aria-label": "Draft tree; arrow keys move from node to node" },
    ...lines, ...all.map(node => node.mark));
  drawing.addEventListener("keydown", event => {
    const beside = by => here.parent?.children[here.parent.children.indexOf(here) + by];
    const next = { ArrowUp: here.parent, ArrowDown: here.children[0], ArrowLeft: beside(-1), ArrowRight: beside(1) };
    if (!(event.key in next)) return;
    event.preventDefault();
    say(next[event.key] ?? here);
  });
  return drawing;
}

if (profiled.length) {
  at("maps").replaceChildren(...drafting.map(mapButton));
  whenChosen(changed => { if (changed.includes("row")) drawDetails(); });
  drawDetails();
} else at("source").hidden = true;
