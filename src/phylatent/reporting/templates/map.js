// The map of the latent space: the chosen state is marked in every panel and shown as a frame.
(() => {
  const { data, ink, decode, CONFIG, FONT } = phylatent;
  const elements = [...document.querySelectorAll("[data-map]")];
  if (!elements.length) return;
  const SMOOTH = ["#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725"];
  const ROUND = ["#e2d9e2", "#6276ba", "#2f1436", "#b0455a", "#e2d9e2"];
  const find = (id) => document.getElementById(id);
  const [select, slider, picture] = [find("map-colour"), find("map-state"), find("map-picture")];
  const samples = data.map.samples.map((sample) => ({
    ...sample,
    values: sample.values.map((text) => decode(text, Float32Array)),
    sheet: Object.assign(new Image(), { src: sample.image }),
  }));
  const panels = data.map.panels.map((panel) => ({ ...panel, x: decode(panel.x, Float32Array), y: decode(panel.y, Float32Array) }));
  const name = () => select.selectedOptions[0].textContent;
  let chosen = { sample: 0, state: 0 };

  // What a coordinate is on this sample: its values, their ends, and whether they go round.
  function coordinateOf(sample) {
    const at = sample.names.indexOf(name());
    if (at < 0) return null;
    const period = sample.periods[at];
    const values = period ? sample.values[at].map((value) => ((value % period) + period) % period) : sample.values[at];
    const ends = period ? [0, period] : [Math.min(...values), Math.max(...values)];
    return { values, ends, stops: period ? ROUND : SMOOTH };
  }

  const written = (value) => (Number.isFinite(value) ? Number(value.toPrecision(3)).toString().replace("-", "−") : "unknown");

  function paintScale(coordinate) {
    const canvas = find("map-scale");
    const context = canvas.getContext("2d");
    const fill = context.createLinearGradient(0, 0, canvas.width, 0);
    coordinate.stops.forEach((stop, at) => fill.addColorStop(at / (coordinate.stops.length - 1), stop));
    context.fillStyle = fill;
    context.fillRect(0, 0, canvas.width, canvas.height);
    find("map-low").textContent = written(coordinate.ends[0]);
    find("map-high").textContent = written(coordinate.ends[1]);
  }

  function drawPanel(element) {
    const panel = panels[Number(element.dataset.map)];
    const coordinate = coordinateOf(samples[panel.sample]);
    const { text, soft, line, surface } = ink();
    const scale = coordinate && {
      color: coordinate.values, cmin: coordinate.ends[0], cmax: coordinate.ends[1],
      colorscale: coordinate.stops.map((stop, at) => [at / (coordinate.stops.length - 1), stop]),
    };
    const marker = { size: 7, line: { width: 0.5, color: soft }, ...(scale || { color: soft }) };
    const here = panel.sample === chosen.sample ? [chosen.state] : [];
    const ring = { size: 16, color: "rgba(0,0,0,0)", line: { width: 3, color: text } };
    const common = { type: "scatter", mode: "markers", cliponaxis: false };
    const traces = [
      { ...common, x: panel.x, y: panel.y, marker, hoverinfo: "none" },
      { ...common, x: here.map((at) => panel.x[at]), y: here.map((at) => panel.y[at]), marker: ring, hoverinfo: "skip" },
    ];
    const axis = (at) => ({
      title: { text: panel.axes[at], font: { size: 12, color: soft } }, tickfont: { size: 11, color: soft }, nticks: 6, automargin: true,
      gridcolor: line, zerolinecolor: line, linecolor: line,
    });
    return Plotly.react(element, traces, {
      xaxis: axis(0), yaxis: { ...axis(1), scaleanchor: "x" }, hovermode: "closest", hoverdistance: 30, dragmode: false, showlegend: false,
      paper_bgcolor: surface, plot_bgcolor: surface, font: { family: FONT, color: text, size: 12 }, margin: { l: 8, r: 12, t: 8, b: 8 },
    }, CONFIG);
  }

  function orderOf(sample) {
    const coordinate = coordinateOf(sample);
    const places = sample.episodes.map((_, at) => at);
    return coordinate ? places.sort((a, b) => coordinate.values[a] - coordinate.values[b]) : places;
  }

  async function showState(index, state) {
    chosen = { sample: index, state };
    const sample = samples[index];
    const order = orderOf(sample);
    slider.max = String(order.length - 1);
    slider.value = String(order.indexOf(state));
    const at = sample.names.indexOf(name());
    const where = `Episode ${sample.episodes[state]}, row ${sample.steps[state]}`;
    slider.setAttribute("aria-valuetext", at < 0 ? where : `${name()} ${written(sample.values[at][state])}, ${where}`);
    find("map-where").textContent = where;
    const list = find("map-values");
    list.replaceChildren(...sample.names.flatMap((label, i) => {
      const [term, value] = [document.createElement("dt"), document.createElement("dd")];
      [term.textContent, value.textContent] = [label, written(sample.values[i][state])];
      if (i === at) value.className = term.className = "chosen";
      return [term, value];
    }));
    for (const element of elements) {
      const panel = panels[Number(element.dataset.map)];
      const here = panel.sample === index ? [state] : [];
      if (element._fullLayout) Plotly.restyle(element, { x: [here.map((i) => panel.x[i])], y: [here.map((i) => panel.y[i])] }, [1]);
    }
    try { await sample.sheet.decode(); } catch { return; }
    const context = picture.getContext("2d");
    context.imageSmoothingEnabled = false;
    context.clearRect(0, 0, picture.width, picture.height);
    const [column, row] = [state % sample.across, Math.floor(state / sample.across)];
    const most = Math.max(sample.width, sample.height);
    const [wide, high] = [(picture.width * sample.width) / most, (picture.height * sample.height) / most];
    context.drawImage(sample.sheet, column * sample.width, row * sample.height, sample.width, sample.height, 0, 0, wide, high);
  }

  async function paint() {
    const first = samples.map(coordinateOf).find(Boolean);
    if (first) paintScale(first);
    for (const element of elements) await drawPanel(element);
    await showState(chosen.sample, chosen.state);
  }

  function rowsOf(title, panel) {
    const sample = samples[panel.sample];
    const head = ["panel", "component 1", "component 2", "episode", "row", ...sample.names];
    return [head, ...sample.episodes.map((episode, at) => [
      title, panel.x[at], panel.y[at], episode, sample.steps[at], ...sample.values.map((values) => values[at])])];
  }
  for (const element of elements) phylatent.rowsOf.set(element, (title) => rowsOf(title, panels[Number(element.dataset.map)]));

  let listening = false;
  phylatent.onPaint(async () => {
    await paint();
    if (listening) return;
    listening = true;
    for (const element of elements) {
      const take = (event) => {
        const point = event.points.find((one) => one.curveNumber === 0);
        if (point) showState(panels[Number(element.dataset.map)].sample, point.pointNumber);
      };
      element.on("plotly_hover", take);
      element.on("plotly_click", take);
    }
    select.addEventListener("change", paint);
    slider.addEventListener("input", () => showState(chosen.sample, orderOf(samples[chosen.sample])[Number(slider.value)]));
  });
})();
