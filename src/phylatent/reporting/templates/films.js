// Films: the models' screens of one episode, moved together by one scrubber. Frames are pieces of pictures that the page holds.
(() => {
  const PACE = 80;

  const pictureOf = (source) => Object.assign(new Image(), { src: source });

  // The last of `steps` that is not after `now`, among those that are there.
  function lastAt(steps, now, there) {
    let found = 0;
    steps.forEach((step, at) => { if (step <= now && (!there || there[at])) found = at; });
    return found;
  }

  function draw(canvas, picture, x, y, side) {
    const context = canvas.getContext("2d");
    context.imageSmoothingEnabled = side >= canvas.width / 2;
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.drawImage(picture, x, y, side, side, 0, 0, canvas.width, canvas.height);
  }

  function screenOf(element, strip, steps, image) {
    const [real, imagined] = element.querySelectorAll("canvas");
    const cursor = image.parentElement.querySelector(".cursor");
    const film = strip.film && { ...strip.film, picture: pictureOf(strip.film.image) };
    const last = film ? film.steps[film.steps.length - 1] : steps[lastAt(steps, Infinity, strip.taken)];
    const cell = (column, row) => [strip.edge + column * (strip.side + strip.gap), strip.edge + row * (strip.side + strip.gap), strip.side];
    async function show(now) {
      const waited = [image, film && film.picture].filter(Boolean).map((picture) => picture.decode());
      try { await Promise.all(waited); } catch { return; }
      const column = lastAt(steps, now, strip.known);
      if (film) {
        const at = lastAt(film.steps, now);
        draw(real, film.picture, (at % film.across) * film.side, Math.floor(at / film.across) * film.side, film.side);
      } else {
        draw(real, image, ...cell(lastAt(steps, now, strip.taken), 0));
      }
      draw(imagined, image, ...cell(column, 1));
      const [from] = cell(lastAt(steps, now), 0);
      cursor.style.left = `${(100 * (from - 2 * strip.edge)) / image.naturalWidth}%`;
      cursor.style.width = `${(100 * (strip.side + 4 * strip.edge)) / image.naturalWidth}%`;
      cursor.hidden = false;
      element.classList.toggle("over", now >= last);
    }
    return { show, goal: (canvas) => image.decode().then(() => draw(canvas, image, ...cell(steps.length, 0)), () => null) };
  }

  function player(article, episode) {
    const images = [...article.querySelectorAll(".film img")];
    const screens = [...article.querySelectorAll(".screen[data-strip]")].map((element, at) =>
      screenOf(element, episode.strips[at], episode.steps, images[at]));
    const button = article.querySelector("[data-play]");
    const slider = article.querySelector("input[type=range]");
    const said = article.querySelector("output");
    let timer = 0;

    function show(step) {
      slider.value = String(step);
      slider.setAttribute("aria-valuetext", `step ${slider.value} of ${slider.max}`);
      said.textContent = `step ${slider.value} of ${slider.max}`;
      return Promise.all(screens.map((screen) => screen.show(Number(slider.value))));
    }

    function stop() {
      clearInterval(timer);
      timer = 0;
      button.textContent = "Play";
    }

    function play() {
      if (Number(slider.value) >= Number(slider.max)) show(0);
      button.textContent = "Pause";
      timer = setInterval(() => {
        if (Number(slider.value) >= Number(slider.max)) stop();
        else show(Number(slider.value) + 1);
      }, PACE);
    }

    button.addEventListener("click", () => (timer ? stop() : play()));
    slider.addEventListener("input", () => { stop(); show(Number(slider.value)); });
    const goal = article.querySelector(".screen.goal canvas");
    article.querySelector(".player").hidden = false;
    return Promise.all([show(0), goal && screens.length && screens[0].goal(goal)]);
  }

  const articles = [...document.querySelectorAll("article.episode")];
  let begun = null;
  phylatent.onPaint(() => (begun ||= Promise.all(articles.map((article, at) => player(article, phylatent.data.films[at])))));
})();
