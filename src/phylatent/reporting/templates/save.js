// Figures and tables as files, made here: nothing is asked of any server.
(() => {
  const SPACE = "http://www.w3.org/2000/svg";
  const MARGIN = 16;
  const ENTITIES = { "&lt;": "<", "&gt;": ">", "&#34;": '"', "&#39;": "'", "&#37;": "%", "&#36;": "$", "&amp;": "&" };
  // Texts of figures are written for plotly; a file has them as they are.
  const plain = (text) => String(text).replaceAll("<br>", " ").replace(/&(?:lt|gt|amp|#34|#39|#37|#36);/g, (found) => ENTITIES[found]);
  const words = (element) => (element ? element.textContent.replace(/\s+/g, " ").trim() : "");

  function give(blob, name) {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: name, hidden: true });
    document.body.append(link);
    link.click();
    link.remove();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
  }

  // A text that a spreadsheet would take for a formula is no formula.
  function cell(value) {
    if (value === null || value === undefined) return "";
    const text = typeof value === "number" ? String(value) : /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
    return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  const csv = (rows) => new Blob([`\ufeff${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`], { type: "text/csv" });

  function tableRows(table) {
    const rows = [...table.rows].map((row) => [...row.cells].map((one) => {
      const note = one.querySelector("small");
      return { text: words(one).slice(0, note ? words(one).length - words(note).length : undefined).trim(), note: words(note) };
    }));
    const noted = rows[0].map((_, at) => rows.some((row) => row[at] && row[at].note));
    return rows.map((row, line) => row.flatMap((one, at) => (noted[at] ? [one.text, line ? one.note : `${one.text} (note)`] : [one.text])));
  }

  function placeOf(element, value) {
    const names = element.layout.xaxis && element.layout.xaxis.ticktext;
    return typeof value === "number" ? (names ? plain(names[Math.round(value)] ?? value) : value) : plain(value);
  }

  function plotRows(title, element) {
    if (phylatent.rowsOf.has(element)) return phylatent.rowsOf.get(element)(title);
    const head = ["panel", "series", "x", "y", "z", "low", "high"];
    return [head, ...element.data.filter((trace) => trace.type !== "mesh3d").flatMap((trace) => Array.from(trace.x ?? [], (x, at) => {
      const [y, error] = [trace.y[at], trace.error_y];
      const ends = error ? [y - error.arrayminus[at], y + error.array[at]] : [null, null];
      return [title, plain(trace.name ?? ""), placeOf(element, x), y, trace.z ? trace.z[at] : null, ...ends];
    }))];
  }

  const panelsOf = (figure) => [...figure.querySelectorAll(".panel")].map((panel) => ({
    panel, title: words(panel.querySelector("h3, h4")), plot: panel.querySelector(".js-plotly-plot"),
  })).filter(({ plot }) => plot);

  function figureRows(figure) {
    const parts = panelsOf(figure).map(({ title, plot }) => plotRows(title, plot));
    return parts.flatMap((rows, at) => (at && String(rows[0]) === String(parts[0][0]) ? rows.slice(1) : rows));
  }

  const escaped = (text) => new XMLSerializer().serializeToString(document.createTextNode(text));
  const written = (text, x, y, size, weight) => `<text x="${x}" y="${y}" font-size="${size}" font-weight="${weight}">${escaped(text)}</text>`;

  function legendOf(figure, left, top) {
    return [...figure.querySelectorAll(".legend li")].map((item) => {
      const box = item.getBoundingClientRect();
      const marks = [...item.querySelectorAll("svg")].map((mark) => {
        const own = mark.getBoundingClientRect();
        return `<g transform="translate(${own.left - left} ${own.top - top})">${mark.outerHTML}</g>`;
      });
      const label = item.querySelector("span");
      return marks.join("") + written(words(label), label.getBoundingClientRect().left - left, box.top - top + box.height / 2 + 5, 15, 400);
    }).join("");
  }

  // One SVG of all panels, where they stand on the page, with their titles and the legend.
  async function drawing(figure) {
    const { text, surface } = phylatent.ink();
    const whole = figure.getBoundingClientRect();
    const [left, top] = [whole.left - MARGIN, whole.top - MARGIN];
    const parts = [];
    let height = 0;
    for (const { panel, title, plot } of panelsOf(figure)) {
      const box = plot.getBoundingClientRect();
      const size = { width: Math.round(box.width), height: Math.round(box.height) };
      const picture = decodeURIComponent((await Plotly.toImage(plot, { format: "svg", ...size })).replace(/^data:image\/svg\+xml,/, ""));
      const heading = panel.querySelector("h3, h4").getBoundingClientRect();
      parts.push(written(title, box.left - left, heading.bottom - top - 6, 15, 600));
      parts.push(picture.replace(/^<svg /, `<svg x="${box.left - left}" y="${box.top - top}" `));
      height = Math.max(height, box.bottom - top + MARGIN);
    }
    const size = [Math.ceil(whole.width + 2 * MARGIN), Math.ceil(height)];
    const font = escaped(phylatent.FONT).replaceAll('"', "'");
    const opened = `<svg xmlns="${SPACE}" width="${size[0]}" height="${size[1]}" viewBox="0 0 ${size[0]} ${size[1]}" font-family="${font}" fill="${text}">`;
    return { size, svg: `${opened}<rect width="100%" height="100%" fill="${surface}"/>${legendOf(figure, left, top)}${parts.join("")}</svg>` };
  }

  async function pixels({ size, svg }) {
    const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    const image = Object.assign(new Image(), { src: address });
    await image.decode();
    const canvas = Object.assign(document.createElement("canvas"), { width: 2 * size[0], height: 2 * size[1] });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(address);
    return new Promise((done) => canvas.toBlob(done, "image/png"));
  }

  const MAKE = {
    svg: async (figure) => new Blob([(await drawing(figure)).svg], { type: "image/svg+xml" }),
    png: async (figure) => pixels(await drawing(figure)),
    csv: async (figure) => csv(figure.matches(".table") ? tableRows(figure.querySelector("table")) : figureRows(figure)),
  };

  for (const button of document.querySelectorAll("[data-save]")) {
    button.addEventListener("click", async () => {
      const figure = button.closest("figure, .tabled");
      const source = figure.matches(".tabled") ? figure.querySelector(".table") : figure;
      button.disabled = true;
      try {
        await phylatent.drawn;
        give(await MAKE[button.dataset.save](source), `${button.dataset.name}.${button.dataset.save}`);
      } finally {
        button.disabled = false;
      }
    });
  }
})();
