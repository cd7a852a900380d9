"use strict";
/* Draws what the page was given as data: plotly figures in the page's own colours, and architectures as SVG. */
(() => {
  const given = JSON.parse(document.getElementById("given").textContent);
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  // Colours and sizes that follow the page; everything else is the figure's own.
  const dressed = (layout) => {
    const narrow = window.innerWidth < 560;
    const axis = { gridcolor: css("--line"), zerolinecolor: css("--line"), linecolor: css("--line"), automargin: true };
    const made = {
      ...layout,
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: css("--ink"), family: "system-ui, sans-serif", size: narrow ? 11 : 13 },
      margin: { l: narrow ? 46 : 60, r: 12, t: 12, b: 48 },
      legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0, ...(layout.legend || {}) },
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--ink") }, align: "left" },
    };
    for (const key of Object.keys({ xaxis: 0, yaxis: 0, ...layout }).filter((k) => /^[xy]axis/.test(k)))
      made[key] = { ...axis, ...(layout[key] || {}) };
    return made;
  };

  const svg = (tag, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const widest = (drawn) =>
    Math.max(...drawn.stages.flatMap((s) => [s.dim, ...s.blocks.flatMap((b) => [b[2], b[3]])]));

  const draw = (drawn, most) => {
    const half = 200, middle = 34, row = 15, unit = (half - middle) / most;
    const rows = drawn.stages.reduce((sum, stage) => sum + 1 + stage.blocks.length, 0);
    const root = svg("svg", { viewBox: `0 0 ${2 * half} ${rows * row + 4}`, role: "img" });
    root.appendChild(svg("title", {}, `architecture ${drawn.id}`));
    let y = 0;
    drawn.stages.forEach((stage, index) => {
      const text = `stage ${index + 1}: width ${stage.dim}, ${stage.grid} tokens`;
      root.appendChild(svg("text", { x: half, y: y + 11, "text-anchor": "middle", "font-size": 10, fill: css("--quiet") }, text));
      y += row;
      for (const [mixer, heads, qkv, mlp, reach] of stage.blocks) {
        const line = svg("g", {});
        const said = `${mixer}${reach ? " " + reach : ""}, ${heads} heads, q+k+v ${qkv}, MLP ${mlp}`;
        line.appendChild(svg("title", {}, said));
        const dim = stage.dim * unit;
        for (const x of [half - middle - dim, half + middle])
          line.appendChild(svg("rect", { x, y, width: dim, height: row, fill: css("--band") }));
        const edges = [half - middle - dim, half + middle + dim];
        for (let head = 0; head < heads; head++) {
          const width = (qkv * unit) / heads;
          line.appendChild(svg("rect", {
            x: half - middle - width * (head + 1), y: y + 2, width, height: row - 4, fill: given.colors[mixer],
            stroke: css("--paper"), "stroke-width": 0.7,
          }));
        }
        line.appendChild(svg("rect", { x: half + middle, y: y + 2, width: mlp * unit, height: row - 4, fill: given.colors.mlp }));
        for (const x of edges)
          line.appendChild(svg("line", { x1: x, x2: x, y1: y, y2: y + row, stroke: css("--ink"), "stroke-width": 1 }));
        const label = reach ? `${heads} · ${reach}` : `${heads}`;
        line.appendChild(svg("text", { x: half, y: y + 11, "text-anchor": "middle", "font-size": 10, fill: css("--ink") }, label));
        root.appendChild(line);
        y += row;
      }
    });
    return root;
  };

  const drawInto = (place, id, title, lines) => {
    const drawn = given.archs[id];
    if (!drawn) return;
    place.replaceChildren();
    const heading = document.createElement("h3");
    heading.textContent = title;
    const note = document.createElement("p");
    note.className = "quiet";
    note.textContent = lines;
    place.append(heading, note, draw(drawn, Number(place.dataset.most) || widest(drawn)));
    place.dataset.drawn = id;
  };

  const redraw = () => {
    document.querySelectorAll(".drawings").forEach((group) => {
      const places = [...group.querySelectorAll("[data-arch]")];
      const most = Math.max(...places.map((place) => widest(given.archs[place.dataset.arch])));
      for (const place of places) {
        place.dataset.most = most;
        drawInto(place, place.dataset.arch, place.dataset.title, place.dataset.note);
      }
    });
    document.querySelectorAll(".picked").forEach((place) => {
      if (place.dataset.drawn) drawInto(place, place.dataset.drawn, place.dataset.title, place.dataset.note);
    });
  };

  const plots = () => [...document.querySelectorAll(".plot")];
  const react = (place) => {
    const figure = given.figures[place.dataset.figure];
    if (window.innerWidth < 560) // a scale of colours takes a fifth of a phone
      for (const trace of figure.data) if (trace.marker && trace.marker.showscale) trace.marker.showscale = false;
    return Plotly.react(place, figure.data, dressed(figure.layout), { responsive: true, displaylogo: false, displayModeBar: false });
  };
  for (const place of plots()) {
    react(place);
    place.on("plotly_click", (event) => {
      const picked = event.points[0].customdata;
      const target = document.getElementById(place.dataset.draws);
      if (!target || !picked) return;
      target.dataset.title = picked[1];
      target.dataset.note = picked[2];
      drawInto(target, picked[0], picked[1], picked[2]);
    });
  }
  redraw();
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { plots().forEach(react); redraw(); });
  document.body.dataset.ready = "yes";
})();
