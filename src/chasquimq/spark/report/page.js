/* Draws the figures of the page in the colours of its theme, and again when theme or queue change. */
(function () {
  'use strict';
  const root = document.documentElement;
  const plots = JSON.parse(document.getElementById('model').textContent).plots;
  const dark = window.matchMedia('(prefers-color-scheme: dark)');
  const coarse = window.matchMedia('(pointer: coarse)');
  const choice = document.getElementById('choice');
  const button = document.getElementById('theme');
  const HEAT = {
    light: ['#dbe9f5', '#b9d7ee', '#6fb0dc', '#2a7fba', '#0b4f86', '#06264a'],
    dark: ['#14324a', '#1c5480', '#2b7fb8', '#5aaee0', '#a6d8f5', '#f2fbff'],
  };
  const STEPS = [[86400000, 'd'], [3600000, 'h'], [60000, 'min'], [1000, 's'], [1, 'ms']];
  let runs = 0;
  let chosen = null; // a theme, where somebody asked for one

  function duration(ms) {
    if (ms === null || ms === undefined) return '–';
    const [size, unit] = STEPS.find(([size]) => Math.abs(ms) >= size) || [1, 'ms'];
    const value = ms / size;
    const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return Number(value.toFixed(digits)) + ' ' + unit;
  }

  function theme() {
    return chosen || (dark.matches ? 'dark' : 'light');
  }

  function painter() {
    const style = getComputedStyle(root);
    return (role) => style.getPropertyValue('--' + role).trim();
  }

  function colour(role, paint) {
    return Array.isArray(role) ? role.map((one) => colour(one, paint)) : paint(role.slice(1));
  }

  /* A copy of a part of a figure, with colours in the place of their roles. */
  function painted(part, paint) {
    if (Array.isArray(part)) return part.map((one) => (typeof one === 'object' ? painted(one, paint) : one));
    if (part === null || typeof part !== 'object') return part;
    const made = {};
    for (const [key, value] of Object.entries(part)) {
      if (key === 'color' || key === 'bgcolor') made[key] = colour(value, paint);
      else if (key === 'colorscale') made[key] = HEAT[theme()].map((colour, at, all) => [at / (all.length - 1), colour]);
      else made[key] = painted(value, paint);
    }
    return made;
  }

  function trace(given, paint) {
    const made = painted(given, paint);
    if (made.meta && made.meta.unit === 'ms') {
      made.text = (made.orientation === 'h' || made.mode === 'markers' ? made.x : made.y).map(duration);
    }
    if (made.colorbar) made.colorbar = { ...made.colorbar, outlinewidth: 0, tickfont: { color: paint('quiet') } };
    return made;
  }

  /* A name gives way to what stands at the end of its line, where there is little room. */
  function annotation({ narrow, beside, ...made }, paint, width) {
    made.font = { color: paint('text'), size: 12 };
    if (narrow === undefined) return made;
    return { ...made, text: width < 700 ? narrow : made.text, width: Math.max(60, width - 30 - 7.5 * beside) };
  }

  function layout(figure, paint, width) {
    const made = painted(figure.layout, paint);
    const axis = { gridcolor: paint('line'), linecolor: paint('line'), zeroline: false, automargin: true,
      tickfont: { color: paint('quiet') } };
    for (const key of Object.keys(made).filter((key) => /^[xy]axis/.test(key))) {
      made[key] = { ...axis, ...made[key] };
      if (key[0] === 'x' && made[key].type === 'date') {
        made[key] = { ...made[key], spikecolor: paint('quiet'), spikethickness: -2, spikedash: 'dot', nticks: width < 500 ? 4 : 10, hoverformat: '%a %d %b %Y %H:%M' };
      }
      if (key[0] === 'y') made[key].fixedrange = true; // a drag chooses a stretch of time
    }
    return {
      hovermode: 'x unified',
      dragmode: coarse.matches ? false : 'zoom', // a finger scrolls the page
      ...made,
      annotations: (made.annotations || []).map((one) => annotation(one, paint, width)),
      paper_bgcolor: 'rgba(0,0,0,0)',
      plot_bgcolor: 'rgba(0,0,0,0)',
      font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: paint('text') },
      hoverlabel: { bgcolor: paint('panel'), bordercolor: paint('faint'), font: { color: paint('text') } },
      legend: { orientation: 'h', traceorder: 'normal', x: 0, y: -0.12, yanchor: 'top', font: { color: paint('text') }, itemwidth: 30 },
      modebar: { bgcolor: 'rgba(0,0,0,0)', color: paint('quiet'), activecolor: paint('text') },
      margin: { l: 8, r: 8, t: made.hoversubplots ? 26 : 10, b: 8 },
      height: figure.height,
      autosize: true,
    };
  }

  function figureOf(key) {
    const figures = plots[key];
    return figures.length === 1 ? figures[0] : figures[choice ? Number(choice.value) : 0];
  }

  function isList(figure) {
    return figure.layout.yaxis.visible === false;
  }

  async function draw(place) {
    const figure = figureOf(place.dataset.plot);
    const canvas = place.querySelector('.canvas');
    place.querySelector('.empty').hidden = Boolean(figure);
    place.querySelector('.drawn').hidden = !figure;
    const rows = place.querySelector('.rows');
    if (rows) {
      rows.open = false;
      rows.querySelectorAll('.scroll').forEach((old) => old.remove());
    }
    if (!figure) return Plotly.purge(canvas);
    const paint = painter();
    canvas.style.height = figure.height + 'px';
    canvas.setAttribute('aria-label', figure.alt);
    place.querySelector('figcaption').textContent = figure.alt;
    await Plotly.react(
      canvas,
      figure.data.map((one) => trace(one, paint)),
      layout(figure, paint, canvas.clientWidth),
      {
        responsive: true,
        displaylogo: false,
        displayModeBar: coarse.matches || isList(figure) ? false : 'hover',
        // By name: what the library would put there by itself sends a chart's data to its makers.
        modeBarButtons: [['toImage', 'resetScale2d']],
        plotlyServerURL: '',
        doubleClick: 'reset',
      },
    );
  }

  async function drawAll() {
    const run = ++runs;
    root.dataset.theme = theme();
    root.removeAttribute('data-ready');
    button.textContent = theme() === 'dark' ? 'Light' : 'Dark';
    button.setAttribute('aria-label', 'Change to ' + button.textContent.toLowerCase() + ' colours');
    for (const place of document.querySelectorAll('[data-plot]')) {
      await draw(place);
      if (run !== runs) return; // somebody asked for another view meanwhile
    }
    root.dataset.ready = 'yes';
  }

  function cell(row, kind, text, label, isNumber) {
    const made = row.appendChild(document.createElement(kind));
    made.textContent = text;
    made.dataset.label = label;
    if (isNumber) made.className = 'number';
  }

  /* The values of a figure over time, for whoever reads rather than looks. */
  function fill(rows) {
    const figure = figureOf(rows.closest('[data-plot]').dataset.plot);
    if (!figure || rows.querySelector('.scroll')) return;
    const names = figure.data.map((one) =>
      [one.meta.queue, one.meta.measure.replace('_ms', '').replace('_', ' ')].filter(Boolean).join(' '));
    const box = rows.appendChild(document.createElement('div'));
    box.className = 'scroll';
    const table = box.appendChild(document.createElement('table'));
    const head = table.createTHead().insertRow();
    [figure.columns, ...names].forEach((name, at) => cell(head, 'th', name, name, at > 0));
    const body = table.createTBody();
    const start = Date.parse(figure.data[0].x0.replace(' ', 'T') + 'Z');
    figure.data[0].y.forEach((_, at) => {
      const row = body.insertRow();
      const time = new Date(start + at * figure.data[0].dx).toISOString().slice(0, 19).replace('T', ' ');
      cell(row, 'td', time, figure.columns, false);
      figure.data.forEach((one, place) => {
        const value = one.y[at];
        const isShare = one.meta.measure.endsWith('rate');
        const text = value === null ? '–' : one.meta.unit === 'ms' ? duration(value)
          : isShare ? (100 * value).toFixed(2) + ' %' : value.toLocaleString('en');
        cell(row, 'td', text, names[place], true);
      });
    });
  }

  function choose() {
    const view = choice.value;
    document.querySelectorAll('[data-view]').forEach((one) => { one.hidden = one.dataset.view !== view; });
    document.querySelectorAll('tr[data-queue]').forEach((one) => {
      one.hidden = view !== '0' && one.dataset.queue !== view;
    });
    return drawAll();
  }

  button.hidden = false;
  button.addEventListener('click', () => {
    chosen = theme() === 'dark' ? 'light' : 'dark';
    drawAll();
  });
  dark.addEventListener('change', drawAll);
  if (choice) choice.addEventListener('change', choose);
  document.querySelectorAll('.rows').forEach((rows) => {
    rows.addEventListener('toggle', () => rows.open && fill(rows));
  });
  if (choice) choose(); // a browser may remember what was chosen when the page is loaded again
  else drawAll();
})();
