"use strict";
(() => {
  const root = document.documentElement;
  const PAUSE = 3000;
  const CONFIG = { displayModeBar: false, responsive: true, scrollZoom: false, displaylogo: false };
  const SVG = "http://www.w3.org/2000/svg";
  const FONT = getComputedStyle(document.body).fontFamily;
  const LOOKS = { training: "now", stopped: "off", finished: "done" };
  const at = (id) => document.getElementById(id);
  const colour = (name) => getComputedStyle(root).getPropertyValue(name).trim();
  let drawn = "";
  let structure = "";
  let filmed = "";
  let figures = [];
  let runs = [];

  // Texts from files are only ever the text of an element.
  function make(tag, text = "", className = "") {
    const element = document.createElement(tag);
    element.textContent = text;
    if (className) element.className = className;
    return element;
  }

  function swatch(fill) {
    const svg = document.createElementNS(SVG, "svg");
    const square = document.createElementNS(SVG, "rect");
    svg.setAttribute("class", "swatch");
    svg.setAttribute("viewBox", "0 0 14 14");
    svg.setAttribute("aria-hidden", "true");
    for (const [name, value] of Object.entries({ width: 14, height: 14, rx: 4, fill })) square.setAttribute(name, value);
    svg.append(square);
    return svg;
  }

  function duration(seconds) {
    if (seconds < 90) return `${Math.round(seconds)} s`;
    if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
    if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
    return `${(seconds / 86400).toFixed(1)} days`;
  }

  function numbersOf(run) {
    const found = [];
    const count = (value) => value.toLocaleString("en");
    if (run.step !== null) found.push(["step", run.total ? `${count(run.step)} of ${count(run.total)}` : count(run.step)]);
    if (run.seconds_left !== undefined) found.push(["time left", duration(run.seconds_left)]);
    if (run.seconds !== undefined) found.push(["took", duration(run.seconds)]);
    if (run.clips_per_second !== undefined) found.push(["clips a second", count(Math.round(run.clips_per_second * 10) / 10)]);
    if (run.seconds_ago !== undefined) found.push(["last written", `${duration(run.seconds_ago)} ago`]);
    return found;
  }

  // A card is made once and then only its texts change, so that nothing flickers and a selection stays.
  function cardOf(index) {
    const cards = at("cards");
    while (cards.children.length <= index) {
      const card = make("article", "", "card");
      const head = make("p", "", "facts");
      card.append(make("h3"), head, document.createElement("progress"), make("dl", "", "numbers"), make("p", "", "sentence"));
      cards.append(card);
    }
    return cards.children[index];
  }

  function put(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function fill(run, index) {
    const card = cardOf(index);
    const [title, facts, progress, numbers, sentence] = card.children;
    const wanted = `${run.name}\n${run.status}`;
    if (card.dataset.is !== wanted) {
      card.dataset.is = wanted;
      title.replaceChildren(swatch(run.colour), document.createTextNode(`${run.name} `));
      title.append(make("span", run.status, `badge ${LOOKS[run.status] || ""}`));
    }
    put(facts, run.facts.map(([name, value]) => `${name} ${value}`).join(" · "));
    progress.hidden = !run.total;
    if (run.total) { progress.max = run.total; progress.value = Math.min(run.step || 0, run.total); }
    progress.setAttribute("aria-label", `Steps of ${run.name}`);
    const told = numbersOf(run);
    while (numbers.children.length > told.length) numbers.lastElementChild.remove();
    told.forEach(([name, value], place) => {
      if (!numbers.children[place]) {
        const pair = make("div");
        pair.append(make("dt"), make("dd"));
        numbers.append(pair);
      }
      put(numbers.children[place].children[0], name);
      put(numbers.children[place].children[1], value);
    });
    put(sentence, run.sentence);
    sentence.hidden = !run.sentence;
  }

  function layoutOf(panel) {
    const [text, soft, line, surface] = ["--ink", "--soft", "--line", "--surface"].map(colour);
    const axis = { gridcolor: line, linecolor: line, zerolinecolor: line, tickfont: { color: soft, size: 12 } };
    const themed = (own) => ({ ...axis, ...own, title: { ...(own.title || {}), font: { size: 12, color: soft } } });
    return {
      ...panel.layout,
      xaxis: themed(panel.layout.xaxis), yaxis: themed(panel.layout.yaxis),
      annotations: panel.layout.annotations.map((note) => ({ ...note, font: { color: text, size: 12, ...note.font } })),
      paper_bgcolor: surface, plot_bgcolor: surface, font: { family: FONT, color: text, size: 13 },
      margin: { l: 8, r: 12, t: 8, b: 8 }, showlegend: false, dragmode: false,
      hoverlabel: { bgcolor: surface, bordercolor: soft, font: { color: text, family: FONT } },
    };
  }

  // Panels are built when there are other ones than before, and otherwise drawn into those that are there.
  function build() {
    const wanted = JSON.stringify(figures.map((figure) => [figure.title, figure.keys, figure.panels.map((panel) => panel.title)]));
    if (wanted === structure) return;
    structure = wanted;
    for (const plot of document.querySelectorAll(".plot")) Plotly.purge(plot);
    at("figures").replaceChildren(...figures.map((figure) => {
      const block = make("figure");
      const legend = make("ul", "", "legend");
      for (const key of figure.keys.filter((one) => !one.dash)) {
        const entry = make("li");
        entry.append(swatch(key.colour), make("span", key.label));
        legend.append(entry);
      }
      const panels = make("div", "", "panels four");
      for (const panel of figure.panels) {
        const box = make("div", "", "panel");
        const plot = make("div", "", "plot small");
        plot.setAttribute("role", "img");
        plot.setAttribute("aria-label", `${panel.title}, over the steps`);
        box.append(make("h4", panel.title), plot);
        panels.append(box);
      }
      block.append(make("h3", figure.title), legend, panels);
      return block;
    }));
  }

  async function paint() {
    at("theme").setAttribute("aria-pressed", String(isDark()));
    const plots = [...document.querySelectorAll(".plot")];
    const panels = figures.flatMap((figure) => figure.panels);
    for (const [place, panel] of panels.entries()) await Plotly.react(plots[place], panel.data, layoutOf(panel), CONFIG);
  }

  async function reel(film, run) {
    const block = make("article", "", "imagined");
    const title = make("h3");
    title.append(swatch(run.colour), document.createTextNode(`${run.name} `), make("span", film.weights, "tag"));
    block.append(title);
    if (!film.image) {
      block.append(make("p", `Nothing is imagined: ${film.sentence}`, "note"));
      return block;
    }
    const image = new Image();
    image.src = film.image;
    await image.decode();
    const gap = 4;
    const width = (film.size[0] + gap) / film.columns.length - gap;
    const height = (film.size[1] + gap) / film.rows.length - gap;
    const table = make("table");
    const head = make("tr");
    head.append(make("td"), ...film.columns.map((name) => make("th", name)));
    table.append(make("thead"), make("tbody"));
    table.tHead.append(head);
    film.rows.forEach((name, down) => {
      const row = make("tr", "", down && down % 2 === 0 ? "apart" : "");
      row.append(make("th", name));
      film.columns.forEach((_, along) => {
        const cell = make("td");
        if (!(name === "imagined" && along === 0)) {
          const canvas = document.createElement("canvas");
          canvas.width = width;
          canvas.height = height;
          canvas.setAttribute("role", "img");
          canvas.setAttribute("aria-label", `${name}, ${film.columns[along]}`);
          const from = [along * (width + gap), down * (height + gap)];
          canvas.getContext("2d").drawImage(image, ...from, width, height, 0, 0, width, height);
          cell.append(canvas);
        }
        row.append(cell);
      });
      table.tBodies[0].append(row);
    });
    const frame = make("div", "", "reel");
    frame.tabIndex = 0;
    frame.setAttribute("role", "region");
    frame.setAttribute("aria-label", `Frames of ${run.name}`);
    frame.append(table);
    block.append(frame);
    return block;
  }

  async function showFilms(versions) {
    at("films").hidden = versions === null;
    const wanted = JSON.stringify(versions);
    if (versions === null || wanted === filmed) return;
    if (Object.keys(versions).length === 0) {
      at("strips").replaceChildren(make("p", "The first film is drawn once there are weights on the disc; that takes a few seconds, and longer beside a training.", "note"));
      filmed = wanted;
      return;
    }
    const films = await (await fetch("films")).json();
    const places = Object.keys(films).sort((a, b) => a - b);
    const reels = await Promise.all(places.map((place) => reel(films[place], runs[place])));
    at("strips").replaceChildren(...reels);
    filmed = wanted;
  }

  async function look() {
    const answer = await fetch("state");
    if (!answer.ok) throw new Error(String(answer.status));
    const state = await answer.json();
    runs = state.runs;
    put(at("title"), runs.length === 1 ? runs[0].name : `${runs.length} runs`);
    const first = runs[0];
    document.title = runs.length === 1 && first.total ? `${Math.floor((100 * first.step) / first.total)} % · ${first.name}` : "phylatent watch";
    runs.forEach(fill);
    if (state.drawn !== drawn) {
      figures = state.figures;
      at("curves").hidden = figures.length === 0;
      build();
      await paint();
      drawn = state.drawn;
    }
    await showFilms(state.films);
    at("gone").hidden = true;
    root.dataset.ready = "true";
  }

  function isDark() {
    return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  at("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("phylatent-theme", root.dataset.theme); } catch { /* not every browser lets a page remember */ }
    paint();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);
  at("theme").setAttribute("aria-pressed", String(isDark()));

  (async () => {
    for (;;) {
      if (!document.hidden) {
        try { await look(); } catch { at("gone").hidden = false; }
      }
      await new Promise((done) => setTimeout(done, PAUSE));
    }
  })();
})();
