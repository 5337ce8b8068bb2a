/* The checks of pages in Chromium. `tests/accessibility.py` loads this file into every document, after axe. */
window.checks = (() => {
  // Of these attributes, axe and the stylesheets only read whether they have a value.
  const NAMES = /^(id|href|src|name|alt|title|value|action|placeholder|datetime|aria-label|data-.*|hx-.*)$/;
  const REFERENCES = ["for", "aria-labelledby", "aria-describedby", "aria-controls"];
  // Django admin names apps, models, columns and fields in classes. Most of these classes are in no stylesheet.
  const NAMED = /^(app|model|column|field)-/;
  // What scripts act upon, and what a policy blocks.
  const HOOKS = /^(data-|hx-|x-|@|:|on|style$)/;
  const FILES = "script, style, meta[http-equiv], meta[name=viewport]";
  // What the rules about a whole page read, and what gives an element its name.
  const SKELETON = "h1, h2, h3, h4, h5, h6, main, nav, header, footer, aside, .skip";
  const NAMING = "a, button, label, summary, legend, th, caption";
  let marks = new Map(), fresh = [], styled = null;

  const selectors = (rules) => [...rules].flatMap((rule) => [rule.selectorText, ...selectors(rule.cssRules ?? [])]);
  const hasRule = (name) => {
    const rules = () => [...document.styleSheets].flatMap((sheet) => selectors(sheet.cssRules)).join();
    styled ??= new Set(rules().match(/\.[\w-]+/g));
    return styled.has("." + name);
  };
  const withId = (it, id) => [...it.ownerDocument.querySelectorAll("#" + CSS.escape(id))];
  const referred = (it) => {
    const named = REFERENCES.flatMap((name) => (it.getAttribute(name) ?? "").split(/\s+/));
    const target = it.getAttribute("href")?.match(/^#(.+)/)?.[1];
    return [...named, target].filter(Boolean).map((id) => withId(it, id));
  };
  const valueOf = (it, { name, value }) => {
    if (name === "id") return value && withId(it, value).length;
    if (name === "class") return value.split(/\s+/).filter((one) => !NAMED.test(one) || hasRule(one)).join(" ");
    return NAMES.test(name) || REFERENCES.includes(name) ? value !== "" : value;
  };
  const hasText = (it) => [...it.childNodes].some((one) => one.nodeType === Node.TEXT_NODE && one.data.trim());
  const isVisible = (it) => it.checkVisibility({ opacityProperty: true, visibilityProperty: true });

  const digest = (text) => {
    let [one, two] = [0xdeadbeef, 0x41c6ce57];
    for (let place = 0; place < text.length; place += 1) {
      one = Math.imul(one ^ text.charCodeAt(place), 2654435761);
      two = Math.imul(two ^ text.charCodeAt(place), 1597334677);
    }
    return (one >>> 0).toString(36) + (two >>> 0).toString(36);
  };
  /* A digest of what axe reads of an element: its tag and attributes and those of its ancestors, how many labels and
  elements with its id and with the ids that it refers to there are, and whether it is visible, scrolls and has text. */
  const mark = (it) => {
    if (it === null || it === it.ownerDocument.body) return "";
    if (!marks.has(it)) {
      const text = it.textContent.trim();
      const own = [
        mark(it.parentElement), it.localName, it.childElementCount > 0, text !== "", hasText(it), isVisible(it),
        it.scrollWidth > it.clientWidth, it.ariaLabel?.includes(text), it.disabled, it.labels?.length,
        referred(it).map((found) => found.length), ...[...it.attributes].map((one) => [one.name, valueOf(it, one)]),
      ].join("|");
      marks.set(it, digest(own));
    }
    return marks.get(it);
  };
  /* Finds the elements that no earlier document had in a window of this width. Returns how many there are. */
  const findFresh = () => {
    const stored = `marks${innerWidth}`;
    const known = new Set(sessionStorage[stored]?.split(" ")), all = [...document.body.querySelectorAll("*")];
    marks = new Map();
    fresh = all.filter((it) => !known.has(mark(it)) && known.add(mark(it)));
    sessionStorage[stored] = [...known].join(" ");
    return fresh.length;
  };

  /* Removes those parts of the page in which nothing is new, except what the rest of the page refers to. */
  const removeKnown = (parts) => {
    const kept = new Set();
    const keep = (it) => {
      for (; it && !kept.has(it); it = it.parentElement) {
        kept.add(it);
        [...(it.labels ?? []), ...referred(it).flat()].forEach(keep);
      }
    };
    [...fresh, ...document.querySelectorAll(SKELETON)].forEach(keep);
    for (const it of document.querySelectorAll(parts)) {
      if (!kept.has(it) && !it.parentElement?.closest(NAMING)) it.remove();
    }
  };

  const hooksOf = (it) => [
    ...(it.localName.includes("-") || it.matches("dialog, iframe, object") ? [it.localName] : []),
    ...[...it.attributes].filter(({ name }) => HOOKS.test(name)).map(({ name, value }) =>
      /^(data|hx)-/.test(name) ? `${it.localName} ${name}` : `${name} ${value}`),
    ...[...it.classList].filter((name) => /^[\w-]+$/.test(name) && !NAMED.test(name) && !hasRule(name)),
  ];
  const sheetsOf = (page) => [...page.querySelectorAll("link[rel=stylesheet]")];
  const hasSheets = (wanted) => sheetsOf(document).map((it) => it.href).join() === wanted.map((it) => it.href).join();

  /* Puts another page into this document, as htmx does, which takes a fraction of the time of opening it. Returns
  whether it did: the page must have the same policy, and nothing that scripts act upon or that a policy can block which
  no earlier page of the window had. */
  const put = async (path, policy, text) => {
    if (policy !== sessionStorage.policy) {
      sessionStorage.policy = policy;
      return false;
    }
    const page = new DOMParser().parseFromString(text, "text/html"), sheets = sheetsOf(page);
    const files = [...page.querySelectorAll(FILES)].map((it) => it.outerHTML).join();
    const known = new Set(JSON.parse(sessionStorage.hooks ?? "[]")), count = known.size;
    const hooks = [...page.querySelectorAll("body *")].flatMap(hooksOf);
    for (const hook of [files, ...sheets.map((it) => it.href), ...hooks]) known.add(hook);
    if (known.size > count) {
      sessionStorage.hooks = JSON.stringify([...known]);
      return false;
    }
    if (!hasSheets(sheets)) {
      sheetsOf(document).forEach((it) => it.remove());
      const added = sheets.map((it) => document.head.appendChild(document.importNode(it)));
      await Promise.all(added.map((it) => new Promise((resolve) => it.addEventListener("load", resolve))));
      styled = null;
    }
    document.documentElement.lang = page.documentElement.lang;
    document.title = page.title;
    document.body.className = page.body.className;
    document.body.replaceChildren(...page.body.childNodes);
    history.replaceState(null, "", path);
    for (const name of ["htmx:afterSwap", "htmx:afterSettle"]) {
      document.body.dispatchEvent(new Event(name, { bubbles: true }));
    }
    return true;
  };

  /* Waits until a change of the colour scheme is drawn and its transitions have ended. Themes have transitions even
  with reduced motion. */
  const rest = async () => {
    for (let frame = 0; frame < 2; frame += 1) await new Promise(requestAnimationFrame);
    const running = document.getAnimations().filter((one) => one.effect.getComputedTiming().endTime !== Infinity);
    await Promise.allSettled(running.map((one) => one.finished));
  };

  const violations = async (context, options) =>
    (await axe.run(context, { ...options, resultTypes: ["violations"], preload: false })).violations.flatMap(
      ({ id, nodes }) => nodes.slice(0, 3).map(({ target, html }) => `${id}: ${target[0]} ${html.slice(0, 120)}`),
    );
  const rules = (withContrast) => violations(document, { rules: { "color-contrast": { enabled: withContrast } } });
  /* The violations of contrast of the new elements. A part that refreshed itself has equal elements in their place. */
  const contrast = async () => {
    const wanted = new Set(fresh.map((it) => marks.get(it)));
    marks = new Map();
    fresh = [...document.body.querySelectorAll("*")].filter((it) => wanted.delete(mark(it)));
    const read = fresh.filter((it) => (hasText(it) || it.matches("input, select, textarea")) && isVisible(it));
    return read.length ? await violations({ include: read }, { runOnly: ["color-contrast"] }) : [];
  };
  const doubleIds = () =>
    [...document.querySelectorAll("[id]")].filter((it) => withId(it, it.id)[0] !== it).map((it) => it.id);
  const tooWide = () => document.documentElement.scrollWidth - window.innerWidth;

  return { contrast, digest, doubleIds, findFresh, put, removeKnown, rest, rules, tooWide };
})();
