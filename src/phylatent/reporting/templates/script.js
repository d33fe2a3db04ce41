"use strict";
// What the page's other parts build on: its data, its colours, and when to paint again.
const phylatent = (() => {
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const plots = [...document.querySelectorAll("[data-figure]")];
  const spaces = [...document.querySelectorAll("[data-cloud]")];
  const switches = [...document.querySelectorAll("[data-run]")];
  const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, displaylogo: false };
  const FONT = getComputedStyle(document.body).fontFamily;
  const EYE = { x: 1.6, y: -1.65, z: 0.75 };
  const eyes = {};
  // On a touch screen a finger scrolls the page; it rotates a figure only once the reader asks for it.
  let rotate = matchMedia("(pointer: coarse)").matches ? false : "turntable";
  let run = data.scatter.first;

  // Seen from `eye`, a little to the right and up, so that the vertical axis keeps its title.
  function cameraFrom(eye) {
    const length = Math.hypot(eye.x, eye.y) || 1;
    return { eye: { ...eye }, center: { x: (0.13 * eye.y) / length, y: (-0.13 * eye.x) / length, z: -0.2 } };
  }

  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  const ink = () => ({ text: colour("--ink"), soft: colour("--soft"), line: colour("--line"), surface: colour("--surface") });

  function layoutOf(panel) {
    const { text, soft, line, surface } = ink();
    const axis = { ticks: "outside", ticklen: 5, tickcolor: "rgba(0,0,0,0)", gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: soft, size: 12 } };
    const themed = (own) => ({ ...axis, ...own, title: { ...(own.title || {}), font: { size: 12, color: soft } } });
    return {
      ...panel.layout,
      xaxis: themed(panel.layout.xaxis),
      yaxis: themed(panel.layout.yaxis),
      shapes: panel.layout.shapes.map((shape) => ({ ...shape, line: { ...shape.line, color: soft } })),
      annotations: panel.layout.annotations.map((note) => ({ ...note, font: { color: text, size: 12, ...note.font } })),
      paper_bgcolor: surface, plot_bgcolor: surface, font: { family: FONT, color: text, size: 13 },
      margin: { l: 8, r: 12, t: 8, b: 8 }, showlegend: false, dragmode: false,
      hoverlabel: { bgcolor: surface, bordercolor: soft, font: { color: text, family: FONT } },
    };
  }

  const overlap = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;

  // Names that do not fit side by side stand upright, shortened; the legend has them whole.
  function fit(element, panel) {
    const boxes = [...element.querySelectorAll(".xtick text")].map((text) => text.getBoundingClientRect());
    if (panel.short.length < 2 || !boxes.some((box, at) => boxes.slice(at + 1).some((other) => overlap(box, other)))) return null;
    const places = panel.short.map((_, at) => at);
    return Plotly.relayout(element, { "xaxis.tickvals": places, "xaxis.ticktext": panel.short, "xaxis.tickangle": 90 });
  }

  // Numbers at marks that would lie on another text are left out: hovering and the table have them.
  function thinOut(element) {
    const kept = [...element.querySelectorAll(".xtick text, .ytick text")].map((text) => text.getBoundingClientRect());
    const texts = [".annotation-text", ".textpoint text", ".bartext"].flatMap((found) => [...element.querySelectorAll(found)]);
    for (const text of texts) {
      text.removeAttribute("visibility");
      const box = text.getBoundingClientRect();
      if (!kept.some((other) => overlap(other, box))) kept.push(box);
      else text.setAttribute("visibility", "hidden");
    }
  }

  async function drawPlot(element) {
    const panel = data.figures[element.dataset.figure][Number(element.dataset.panel)];
    const first = !element._fullLayout;
    await Plotly.react(element, panel.data, layoutOf(panel), CONFIG);
    await fit(element, panel);
    if (first) element.on("plotly_afterplot", () => thinOut(element));
    thinOut(element);
  }

  let wide = innerWidth;
  let waiting = 0;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    if (innerWidth === wide) return;
    root.dataset.ready = "false";
    waiting = setTimeout(async () => {
      await drawn;
      wide = innerWidth;
      for (const element of plots) if (element.querySelector(".xtick")) await drawPlot(element);
      root.dataset.ready = "true";
    }, 300);
  });

  function decode(text, Type) {
    return new Type(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  }

  const decoded = new Map();
  function cloudOf(index, name) {
    const key = `${index} ${name}`;
    const packed = data.scatter.runs[index].clouds[name];
    if (!decoded.has(key) && packed) {
      const points = { ...packed, failed: decode(packed.failed, Uint8Array) };
      for (const axis of "xyz") points[axis] = decode(packed[axis], Float32Array);
      decoded.set(key, points);
    }
    return decoded.get(key);
  }

  function pointsOf(cloud, failing, name) {
    const [x, y, z] = ["x", "y", "z"].map((axis) => cloud[axis].filter((_, at) => Boolean(cloud.failed[at]) === failing));
    const [a, b, c] = data.scatter.axes[name];
    const small = cloud.count > 5000 ? 1.8 : 2.6;
    return {
      type: "scatter3d", mode: "markers", x, y, z, name: failing ? "fails" : "ordinary",
      marker: failing
        ? { color: data.scatter.failed, symbol: "cross", size: small + 4, opacity: 1 }
        : { color: data.scatter.ordinary[name], symbol: "circle", size: small, opacity: cloud.count > 5000 ? 0.45 : 0.65 },
      hovertemplate: `${a} %{x:.3f}<br>${b} %{y:.3f}<br>${c} %{z:.3f}<extra>${failing ? "fails" : "ordinary"}</extra>`,
    };
  }

  function planeOf([axis, value], box) {
    const ends = { x: box[0], y: box[1], z: box[2] };
    const [first, second] = ["x", "y", "z"].filter((other) => other !== axis);
    const corners = { [axis]: [value, value, value, value] };
    corners[first] = [ends[first][0], ends[first][1], ends[first][1], ends[first][0]];
    corners[second] = [ends[second][0], ends[second][0], ends[second][1], ends[second][1]];
    return { type: "mesh3d", ...corners, i: [0, 0], j: [1, 2], k: [2, 3], color: ink().soft, opacity: 0.22, hoverinfo: "skip" };
  }

  function drawSpace(element) {
    const name = element.dataset.cloud;
    const cloud = cloudOf(run, name);
    const { text, soft, line, surface } = ink();
    const base = { paper_bgcolor: surface, font: { family: FONT, color: text, size: 11 }, showlegend: false, margin: { l: 0, r: 0, t: 0, b: 0 } };
    if (!cloud) {
      const note = { text: "not measured", x: 0.5, y: 0.5, xref: "paper", yref: "paper", showarrow: false };
      return Plotly.react(element, [], { ...base, plot_bgcolor: surface, annotations: [note], xaxis: { visible: false }, yaxis: { visible: false } }, CONFIG);
    }
    const box = data.scatter.boxes[name];
    const titles = data.scatter.axes[name].map((label) => label.replace(/^(d|r) (\w+)/, "$1<sub>$2</sub>"));
    const log = data.scatter.log[name];
    const axis = (at) => ({
      title: { text: titles[at], font: { size: 12, color: text } }, tickfont: { size: 10, color: soft }, nticks: 5,
      gridcolor: line, zerolinecolor: line, backgroundcolor: surface, showspikes: false, range: box[at],
      ...(at === 2 && log ? { type: "log", range: box[2].map(Math.log10), dtick: 1, exponentformat: "power" } : {}),
    });
    const traces = [pointsOf(cloud, false, name), pointsOf(cloud, true, name), ...cloud.planes.map((plane) => planeOf(plane, box))];
    const scene = { xaxis: axis(0), yaxis: axis(1), zaxis: axis(2), aspectmode: "cube", dragmode: rotate, camera: cameraFrom(eyes[name] || EYE) };
    return Plotly.react(element, traces, { ...base, scene, hovermode: "closest" }, CONFIG);
  }

  function listen(element) {
    element.on("plotly_relayout", (change) => {
      const eye = change["scene.camera"]?.eye;
      if (eye) eyes[element.dataset.cloud] = { x: eye.x, y: eye.y, z: eye.z };
    });
  }

  function show(index) {
    run = index;
    for (const button of switches) button.setAttribute("aria-pressed", String(Number(button.dataset.run) === run));
    for (const note of document.querySelectorAll("[data-note]")) note.hidden = Number(note.dataset.note) !== run;
    return Promise.all(spaces.map(drawSpace));
  }

  function turn(angle) {
    for (const element of spaces) {
      const eye = eyes[element.dataset.cloud] || EYE;
      const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
      eyes[element.dataset.cloud] = { x: eye.x * cos - eye.y * sin, y: eye.x * sin + eye.y * cos, z: eye.z };
      drawSpace(element);
    }
  }

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  const painters = [];
  const toggle = document.getElementById("theme");
  async function paint() {
    toggle.setAttribute("aria-pressed", String(isDark()));
    for (const element of plots) if (element._fullLayout) await drawPlot(element);
    for (const element of spaces) if (element._fullLayout) await drawSpace(element);
    for (const again of painters) await again();
  }

  toggle.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("phylatent-theme", root.dataset.theme); } catch { /* a page from disk may not be allowed to remember */ }
    paint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  for (const button of switches) button.addEventListener("click", () => show(Number(button.dataset.run)));
  document.getElementById("turn-left")?.addEventListener("click", () => turn(-Math.PI / 8));
  document.getElementById("turn-right")?.addEventListener("click", () => turn(Math.PI / 8));
  document.getElementById("turn-reset")?.addEventListener("click", () => { for (const name of Object.keys(eyes)) delete eyes[name]; turn(0); });
  const touch = document.getElementById("touch");
  if (touch && rotate === false) {
    touch.hidden = false;
    touch.addEventListener("click", () => {
      rotate = rotate ? false : "turntable";
      touch.setAttribute("aria-pressed", String(Boolean(rotate)));
      spaces.forEach(drawSpace);
    });
  }

  // One figure at a time, so that the page answers while it draws.
  const pause = () => new Promise((done) => setTimeout(done, 0));
  const drawn = (async () => {
    await null;
    toggle.setAttribute("aria-pressed", String(isDark()));
    for (const element of plots) { await drawPlot(element); await pause(); }
    for (const element of spaces) { await drawSpace(element); listen(element); await pause(); }
    for (const first of painters) { await first(); await pause(); }
    root.dataset.ready = "true";
  })();

  return { data, ink, decode, CONFIG, FONT, drawn, rowsOf: new Map(), onPaint: (paintAgain) => painters.push(paintAgain) };
})();
