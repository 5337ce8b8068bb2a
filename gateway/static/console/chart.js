// Charts of counts by day: axes, and the values of the day under the pointer. Without scripts, the page shows its own bars.
const colours = { sent: "--pico-muted-color", delivered: "--pico-primary", failed: "--brand-bad", time: "--pico-primary" };
const drawCharts = (part) => {
  for (const figure of part.querySelectorAll(".plot[data-chart]:not(.drawn)")) {
    const { days, series, unit } = JSON.parse(figure.dataset.chart);
    const style = getComputedStyle(figure);
    const colour = (name) => style.getPropertyValue(name).trim();
    const words = (value) => (value == null ? "–" : `${value.toLocaleString("en-IN")}${unit}`);
    const axis = { stroke: colour("--pico-muted-color"), grid: { stroke: colour("--pico-muted-border-color"), width: 1 }, ticks: { show: false }, font: `12px ${style.fontFamily}` };
    const place = document.createElement("div");
    const chart = new uPlot(
      {
        width: figure.clientWidth,
        height: 220,
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
        scales: { y: { range: (_, low, high) => [0, Math.max(4, high * 1.1)] } },
        axes: [{ ...axis, space: 60, incrs: [1, 2, 3, 7, 14, 30].map((days) => days * 86_400), values: "{D} {MMM}" }, { ...axis, size: 64, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 1e7], values: (_, ticks) => ticks.map(words) }],
        series: [
          { label: "Day", value: "{D} {MMM} {YYYY}" },
          ...series.map(({ name }) => ({ label: name, stroke: colour(colours[name] ?? "--pico-color"), width: 2, points: { show: true, size: 6 }, value: (_, value) => words(value) })),
        ],
      },
      [days, ...series.map(({ values }) => values)],
      place,
    );
    place.querySelector("canvas").setAttribute("role", "img");
    place.querySelector("canvas").setAttribute("aria-label", figure.querySelector("svg").getAttribute("aria-label"));
    figure.prepend(place);
    figure.classList.add("drawn");
    new ResizeObserver(() => chart.setSize({ width: figure.clientWidth, height: 220 })).observe(figure);
  }
};
drawCharts(document);
document.addEventListener("htmx:afterSettle", () => drawCharts(document));
