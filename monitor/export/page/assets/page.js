"use strict";
// Draws each control chart from the agent's history as it comes into sight, and brings the page up to date
// part by part. The page is whole without this file.
(() => {
  const KEYS = {
    value: "", limit: "control limits", center: "centre", objective: "objective", realised: "",
    other: "", ssme: "ssme", violation: "breaks a rule", alarm: "out of control",
    improved: "improved", version: "another version", rebaseline: "new baseline", refit: "refit",
  };
  const charts = new Map(); // figure -> {plot, data}
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const percent = (ratio) => (ratio == null ? "unknown" : (100 * ratio).toFixed(1) + " %");
  const isRatio = (data) => data.unit == null || data.unit === "ratio";
  const three = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
  // A value of a chart with its unit: a ratio in per cent.
  const inUnit = (data, value) =>
    value == null || isRatio(data) ? percent(value) : [three.format(value), data.unit].filter(Boolean).join(" ");
  const moment = (seconds) => new Date(1000 * seconds).toISOString().slice(0, 19).replace("T", " ") + " UTC";
  const some = (values) => values.some((value) => value != null);

  function readout(data, i) {
    const words = [`Window ${data.window[i]}, ${moment(data.time[i])}: ${data.estimator} ${inUnit(data, data.value[i])}`];
    if (data.lower[i] != null) words.push(`(${inUnit(data, data.lower[i])} to ${inUnit(data, data.upper[i])})`);
    if (data.realised[i] != null) {
      words.push(`· ${data.realised_name} ${inUnit(data, data.realised[i])}`);
      if (data.labels[i] != null) words.push(`of ${data.labels[i].toLocaleString("en")} label${data.labels[i] === 1 ? "" : "s"}`);
    }
    if (data.other.length && data.other[i] != null) words.push(`· ${data.other_name} ${inUnit(data, data.other[i])}`);
    if (data.ssme[i] != null && data.estimator !== "ssme") words.push(`· ssme ${inUnit(data, data.ssme[i])}`);
    if (data.limit_lower[i] != null)
      words.push(`· limits ${inUnit(data, data.limit_lower[i])} to ${inUnit(data, data.limit_upper[i])}`);
    if (data.violated[i]) words.push("· breaks a rule");
    if (data.out_of_control[i]) words.push("· out of control");
    if (data.improved[i]) words.push("· improved");
    for (const [events, kind] of [[data.versions, "version"], [data.rebaselined, "new baseline"], [data.refitted, "refit"]])
      for (const [at, name] of events) if (at === i) words.push(`· ${kind}${name ? ` (${name})` : ""}`);
    return words.join(" ");
  }

  // Behind the lines: where the alarm or an improvement stood, and where another version begins.
  function behind(u, data) {
    const { ctx, bbox } = u;
    const half = (i) => (u.valToPos(Math.min(i + 1, data.time.length - 1), "x", true) - u.valToPos(i, "x", true)) / 2;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    data.out_of_control.forEach((on, i) => {
      if (!on && !data.improved[i]) return;
      ctx.fillStyle = css(on ? "--alarm" : "--floor");
      const width = Math.max(2 * (half(i) || half(Math.max(i - 1, 0))), 1);
      const left = u.valToPos(i, "x", true) - width / 2;
      ctx.globalAlpha = on ? 0.2 : 0.1;
      ctx.fillRect(left, bbox.top, width, bbox.height);
      ctx.globalAlpha = 1;
      ctx.fillRect(left, bbox.top, width, 5 * devicePixelRatio);
    });
    ctx.strokeStyle = css("--ink");
    for (const [events, dash] of [[data.versions, [2, 4]], [data.rebaselined, [8, 3, 2, 3]]])
      for (const [i] of events) {
        const x = u.valToPos(i - 0.5, "x", true);
        ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
    ctx.fillStyle = css("--other");
    for (const [i] of data.refitted) {
      const [x, foot, size] = [u.valToPos(i - 0.5, "x", true), bbox.top + bbox.height, 5 * devicePixelRatio];
      ctx.beginPath();
      ctx.moveTo(x - size, foot);
      ctx.lineTo(x, foot - 2 * size);
      ctx.lineTo(x + size, foot);
      ctx.fill();
    }
    ctx.restore();
  }

  // Over the lines: what labels said, with whiskers, and the windows that broke a rule.
  function over(u, data) {
    const { ctx, bbox } = u;
    const [x, y] = [(i) => u.valToPos(i, "x", true), (v) => u.valToPos(v, "y", true)];
    const unit = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.setLineDash([]);
    ctx.lineWidth = unit;
    data.realised.forEach((value, i) => {
      if (value == null) return;
      ctx.strokeStyle = css("--ink");
      ctx.fillStyle = css("--back");
      if (data.realised_lower[i] != null) {
        ctx.globalAlpha = data.time.length > 100 ? 0.2 : 0.35;
        ctx.beginPath();
        ctx.moveTo(x(i), y(data.realised_lower[i]));
        ctx.lineTo(x(i), y(data.realised_upper[i]));
        ctx.stroke();
        ctx.globalAlpha = 1;
      }
      ctx.beginPath();
      ctx.arc(x(i), y(value), 2.6 * unit, 0, 2 * Math.PI);
      ctx.fill();
      ctx.stroke();
    });
    ctx.strokeStyle = css("--other");
    data.ssme.forEach((value, i) => {
      if (value != null && data.estimator !== "ssme")
        ctx.strokeRect(x(i) - 2.5 * unit, y(value) - 2.5 * unit, 5 * unit, 5 * unit);
    });
    ctx.fillStyle = css("--broken");
    data.violated.forEach((broken, i) => {
      if (!broken || data.value[i] == null) return;
      const size = 5 * unit;
      ctx.beginPath();
      ctx.moveTo(x(i), y(data.value[i]) - size);
      ctx.lineTo(x(i) + size, y(data.value[i]));
      ctx.lineTo(x(i), y(data.value[i]) + size);
      ctx.lineTo(x(i) - size, y(data.value[i]));
      ctx.fill();
    });
    ctx.restore();
  }

  function range(data) {
    const shown = ["value", "lower", "upper", "limit_lower", "limit_upper", "realised", "other"]
      .flatMap((name) => data[name]).concat([data.objective]).filter((value) => value != null);
    if (!shown.length) return [0, 1];
    const [low, high] = [Math.min(...shown), Math.max(...shown)];
    const narrowest = isRatio(data) ? 0.02 : 0.02 * Math.max(Math.abs(low), Math.abs(high)) || 1;
    const air = Math.max(0.06 * (high - low), (narrowest - (high - low)) / 2);
    return [low < 0 ? low - air : Math.max(low - air, 0), isRatio(data) && high <= 1 ? Math.min(high + air, 1) : high + air];
  }

  const height = (figure, width) =>
    figure.matches(".small") ? 160 : width < 500 ? 220 : figure.matches(".large") ? 380 : 300;

  function options(data, figure, width, said, whole) {
    const [soft, line] = [css("--soft"), css("--line")];
    const axis = { stroke: soft, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const day = (i) => (Number.isInteger(i) && data.time[i] != null ? moment(data.time[i]).slice(5, 16) : "");
    const tick = (mark) => (isRatio(data) ? +(100 * mark).toFixed(2) + " %" : mark.toLocaleString("en", { maximumSignificantDigits: 6 }));
    const edge = { points: { show: false }, stroke: "transparent", width: 0 };
    const limit = { stroke: soft, width: 1, dash: [4, 4], points: { show: false } };
    const doubted = figure.matches(".untrusted"); // nothing in the tones of good news
    const [value, floor] = doubted ? [soft, soft] : [css("--estimate"), css("--floor")];
    return {
      width, height: height(figure, width), legend: { show: false },
      scales: { x: { time: false, range: (u, low, high) => [low - 0.5, high + 0.5] }, y: { range: () => range(data) } },
      axes: [
        { ...axis, space: 110, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500], values: (u, marks) => marks.map(day) },
        { ...axis, size: 58, values: (u, marks) => marks.map(tick) },
      ],
      cursor: { drag: { x: true, y: false } },
      bands: [{ series: [2, 1], fill: value + "22" }],
      series: [
        {}, edge, edge, limit, limit, { stroke: soft, width: 0.5, points: { show: false } },
        { stroke: floor, width: 3, points: { show: false } },
        { stroke: value, width: 1.75, points: { size: 4, show: data.time.length < 80 } },
        { stroke: css("--other"), width: 1.5, dash: [4, 3], points: { show: false } },
      ],
      hooks: {
        drawAxes: [(u) => behind(u, data)],
        draw: [(u) => over(u, data)],
        setCursor: [(u) => { if (u.cursor.idx != null) said.textContent = readout(data, u.cursor.idx); }],
        setScale: [(u, key) => { if (key === "x") whole.hidden = span(u) >= data.time.length - 1; }],
      },
    };
  }

  function keys(data) {
    const list = document.createElement("ul");
    list.className = "keys";
    const level = ` with its ${+(100 * data.level).toFixed(1)} % interval`;
    const present = {
      value: some(data.value), limit: some(data.limit_lower), center: some(data.center),
      objective: data.objective != null, other: some(data.other), realised: some(data.realised),
      ssme: some(data.ssme) && data.estimator !== "ssme", violation: data.violated.some(Boolean),
      alarm: data.out_of_control.some(Boolean), improved: data.improved.some(Boolean), version: data.versions.length > 0,
      rebaseline: data.rebaselined.length > 0, refit: data.refitted.length > 0,
    };
    for (const [name, words] of Object.entries(KEYS)) {
      if (!present[name]) continue;
      const item = list.appendChild(document.createElement("li"));
      item.className = "key-" + name;
      item.textContent = { value: data.estimator + level, realised: data.realised_name, other: data.other_name }[name] || words;
      if (name === "objective") item.textContent = `${data.is_floor ? "floor" : "ceiling"} ${inUnit(data, data.objective)}`;
    }
    return list;
  }

  const FEWEST = 4; // windows less one at the closest zoom
  const span = (u) => u.scales.x.max - u.scales.x.min - 1; // the scale has half a window more on each side

  // Select a window, of a part of the chart that is `width` windows wide and holds it.
  function select(u, data, i, width) {
    const last = data.time.length - 1;
    const wide = Math.min(Math.max(width, FEWEST), last);
    let low = u.scales.x.min + 0.5;
    if (wide !== span(u)) low = i - wide / 2;
    low = Math.min(Math.max(low, i - wide, 0), i, last - wide);
    u.setScale("x", { min: low, max: low + wide });
    queueMicrotask(() => { // uPlot sets the scale in such a task too
      u.setCursor({ left: u.valToPos(i, "x"), top: u.valToPos(data.value[i] ?? range(data)[0], "y") });
    });
  }

  // Arrow keys walk through the windows, so that the chart can be read without a mouse or without seeing it;
  // + and - zoom, and Escape shows the whole chart again.
  function walk(event, u, data) {
    const last = data.time.length - 1;
    const at = u.cursor.idx == null ? last + 1 : u.cursor.idx;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last }[event.key];
    const width = { "+": span(u) / 2, "=": span(u) / 2, "-": 2 * span(u), Escape: last }[event.key];
    if ((to ?? width) === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    select(u, data, Math.min(Math.max(to ?? at, 0), last), width ?? span(u));
  }

  // The first and the last window of the part of a chart that is shown, if it is zoomed.
  function shownPart(figure) {
    const { plot, data } = charts.get(figure) ?? {};
    if (!plot || span(plot) >= data.time.length - 1) return [];
    const { min, max } = plot.scales.x;
    return [data.window[Math.round(min + 0.5)], data.window[Math.round(max - 0.5)]];
  }

  function draw(figure, data) {
    const zoomed = shownPart(figure);
    charts.get(figure)?.plot.destroy();
    figure.querySelectorAll(".plot, .readout, .keys, button, noscript").forEach((old) => old.remove());
    const plot = document.createElement("div");
    const said = document.createElement("output");
    plot.className = "plot";
    plot.tabIndex = 0;
    plot.setAttribute("role", "img");
    plot.setAttribute("aria-label", `${figure.querySelector("figcaption").textContent}. ${data.time.length} windows; ` +
      `the newest: ${readout(data, data.time.length - 1)}. Arrow keys go from window to window, + and - zoom, Escape shows all windows.`);
    said.className = "readout";
    said.textContent = readout(data, data.time.length - 1);
    const whole = document.createElement("button");
    whole.textContent = "All windows";
    whole.hidden = true;
    figure.append(keys(data), plot, said, whole);
    const flat = data.time.map(() => data.objective);
    const columns = [data.time.map((_, i) => i), data.lower, data.upper, data.limit_lower, data.limit_upper,
      data.center, flat, data.value, data.other.length ? data.other : data.time.map(() => null)];
    const u = new uPlot(options(data, figure, plot.clientWidth, said, whole), columns, plot);
    const low = data.window.findIndex((window) => window >= zoomed[0]);
    const high = data.window.findLastIndex((window) => window <= zoomed[1]);
    if (low >= 0 && high > low) u.setScale("x", { min: low, max: high });
    whole.addEventListener("click", () => {
      plot.focus();
      select(u, data, u.cursor.idx ?? data.time.length - 1, data.time.length - 1);
    });
    plot.addEventListener("keydown", (event) => walk(event, u, data));
    if (figure.hasAttribute("data-select")) {
      const open = () => { if (u.cursor.idx != null) choose(data.window[u.cursor.idx]); };
      let pressed = 0; // where the mouse went down: a drag zooms, and selects nothing
      plot.addEventListener("mousedown", (event) => { pressed = event.clientX; });
      plot.addEventListener("click", (event) => { if (Math.abs(event.clientX - pressed) < 5) open(); });
      plot.addEventListener("keydown", (event) => { if (event.key === "Enter") open(); });
    }
    charts.set(figure, { plot: u, data });
  }

  // The window that is shown in detail stands in the address, so that it can be handed on.
  function choose(window) {
    const address = new URL(location);
    address.searchParams.set("window", window);
    history.replaceState(null, "", address);
    refresh();
  }

  // The newest windows of a model in its row: the estimate, its limits and its objective.
  function trend(svg, data) {
    const [width, height] = [150, 35];
    const from = Math.max(data.time.length - 60, 0);
    const values = data.value.slice(from);
    const shown = values.concat(data.limit_lower.slice(from), data.limit_upper.slice(from), [data.objective])
      .filter((value) => value != null);
    if (!shown.length) return;
    const [low, high] = [Math.min(...shown), Math.max(...shown)];
    const x = (i) => (width * (i + 0.5)) / values.length;
    const y = (value) => 3 + (height - 6) * (high > low ? (high - value) / (high - low) : 0.5);
    const path = (column, name) => {
      const line = document.createElementNS("http://www.w3.org/2000/svg", "path");
      let step = "M";
      const points = column.map((value, i) => {
        const said = value == null ? "" : `${step}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
        step = value == null ? "M" : "L";
        return said;
      });
      line.setAttribute("d", points.join(""));
      line.setAttribute("class", name);
      return line;
    };
    svg.replaceChildren(
      path(data.limit_lower.slice(from), "limit"), path(data.limit_upper.slice(from), "limit"),
      path(values.map(() => data.objective), "objective"), path(values, "value"));
    svg.setAttribute("aria-label", `${values.length} windows; the newest: ${readout(data, data.time.length - 1)}`);
  }

  async function load(figure) {
    try {
      const answer = await fetch(figure.dataset.history);
      if (!answer.ok) throw new Error((await answer.json()).error);
      const data = await answer.json();
      if (!data.time.length) return;
      if (figure.matches("svg")) trend(figure, data); else draw(figure, data);
    } catch (error) {
      if (figure.matches("svg")) return; // its row has the newest figures
      const said = figure.querySelector(".readout") || figure.appendChild(document.createElement("output"));
      said.className = "readout";
      said.textContent = "The chart cannot be drawn: " + error.message;
    }
  }

  const sight = new IntersectionObserver((seen) => {
    for (const { target, isIntersecting } of seen) if (isIntersecting) { sight.unobserve(target); load(target); }
  }, { rootMargin: "300px" });
  // A few are drawn at once, so that they are there when the page is printed.
  const watch = (root) => root.querySelectorAll("[data-history]").forEach((figure, i) => {
    if (i < 20 && figure.checkVisibility?.()) load(figure); else sight.observe(figure);
  });

  // A figure that is still there keeps its drawing until the newer one is ready; what is open stays open.
  function replace(old, fresh) {
    const opened = new Set([...old.querySelectorAll("details[open]")].map((one) => one.id));
    const known = new Set([...old.querySelectorAll("details")].map((one) => one.id));
    fresh.querySelectorAll("details").forEach((one) => { if (known.has(one.id)) one.open = opened.has(one.id); });
    const drawn = new Map([...old.querySelectorAll("figure")].map((one) => [one.dataset.history, one]));
    for (const figure of fresh.querySelectorAll("figure")) {
      figure.querySelectorAll("noscript").forEach((one) => one.remove());
      const kept = drawn.get(figure.dataset.history);
      if (!kept || !charts.has(kept)) continue;
      const changed = kept.dataset.windows !== figure.dataset.windows || kept.className !== figure.className;
      kept.className = figure.className;
      kept.dataset.windows = figure.dataset.windows;
      kept.querySelector("figcaption").textContent = figure.querySelector("figcaption").textContent;
      figure.replaceWith(kept);
      if (changed && !kept.contains(document.activeElement)) sight.observe(kept);
    }
    const trends = new Map([...old.querySelectorAll("svg.trend")].map((one) => [one.dataset.history, one]));
    for (const one of fresh.querySelectorAll("svg.trend")) {
      const kept = trends.get(one.dataset.history);
      if (kept) one.replaceChildren(...kept.childNodes);
    }
    old.replaceChildren(...fresh.childNodes);
    arrange();
    for (const figure of charts.keys())
      if (!figure.isConnected) { charts.get(figure).plot.destroy(); charts.delete(figure); }
    watchNew(old);
  }
  const watchNew = (root) => root.querySelectorAll("[data-history]").forEach((figure) => {
    if (!charts.has(figure)) sight.observe(figure);
  });

  // The table of models: sorted by a column, filtered by what its rows say; both outlive a refresh.
  const order = { column: -1, down: false };
  const filter = document.createElement("input");
  const key = (row) => {
    const cell = row.cells[order.column];
    const said = cell.dataset.sort ?? cell.textContent;
    return said !== "" && !isNaN(said) ? Number(said) : said;
  };
  function arrange() {
    const table = document.querySelector("table.overview");
    if (!table) return ages();
    const rows = [...table.tBodies[0].rows];
    if (order.column >= 0) {
      const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0) * (order.down ? -1 : 1);
      rows.sort((a, b) => compare(key(a), key(b)));
      table.tBodies[0].append(...rows);
    }
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
    [...table.tHead.rows[0].cells].forEach((head, i) => {
      if (!head.querySelector("button")) {
        const button = document.createElement("button");
        button.textContent = head.textContent;
        head.replaceChildren(button);
        button.addEventListener("click", () => {
          Object.assign(order, { column: i, down: order.column === i && !order.down });
          arrange();
        });
      }
      head.setAttribute("aria-sort", order.column !== i ? "none" : order.down ? "descending" : "ascending");
    });
    ages();
  }
  function ages() {
    document.querySelectorAll("main time").forEach((one) => {
      one.title ||= one.textContent;
      const seconds = (Date.now() - Date.parse(one.dateTime)) / 1000;
      const words = seconds >= 48 * 3600 ? one.title.slice(0, 16) + " UTC"
        : age(seconds) + (one.closest(".since") ? "" : " ago");
      if (one.textContent !== words) one.textContent = words;
    });
  }
  function age(seconds) {
    for (const [name, size] of [["h", 3600], ["min", 60]])
      if (seconds >= 2 * size) return `${Math.floor(seconds / size)} ${name}`;
    return `${Math.max(Math.floor(seconds), 0)} s`;
  }
  filter.type = "search";
  filter.placeholder = "Filter by model, task, state or metric";
  filter.setAttribute("aria-label", filter.placeholder);
  filter.addEventListener("input", arrange);
  const overview = document.getElementById("overview");
  if (overview && document.querySelectorAll("table.overview tbody tr").length > 5) overview.before(filter);

  const seen = new Map();
  const stale = document.getElementById("stale");
  const away = stale.textContent;
  async function refresh() {
    let why = away;
    try {
      const answer = await fetch(location.pathname + location.search, { headers: { accept: "text/html" } });
      if (!answer.ok) {
        why = `This page cannot be brought up to date: ${await answer.text()}`;
        throw new Error(why);
      }
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const fresh of page.querySelectorAll("main > div")) {
        const old = document.getElementById(fresh.id);
        const text = fresh.innerHTML;
        // Not under someone's hands: what has the focus is brought up to date once it has lost it.
        if (!old || seen.get(fresh.id) === text || old.contains(document.activeElement)) continue;
        seen.set(fresh.id, text);
        replace(old, fresh);
      }
      stale.hidden = true;
      arrange();
    } catch {
      stale.textContent = why;
      stale.hidden = false;
    }
  }

  const redraw = () => charts.forEach(({ data }, figure) => draw(figure, data));
  const paper = (on) => { document.documentElement.classList.toggle("paper", on); redraw(); }; // light, in any theme
  addEventListener("beforeprint", () => paper(true));
  addEventListener("afterprint", () => paper(false));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = innerWidth;
  addEventListener("resize", () => { if (width !== innerWidth) { width = innerWidth; redraw(); } });
  arrange();
  watch(document);
  setInterval(() => { if (!document.hidden) ages(); }, 1000);
  setInterval(() => { if (!document.hidden) refresh(); }, 1000 * document.body.dataset.refresh);
  document.addEventListener("visibilitychange", () => { if (!document.hidden) refresh(); });
})();
