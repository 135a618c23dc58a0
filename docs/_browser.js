// What docs/_browser.py asks of a page.
window.site = (() => {
  const parsed = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    parsed.clearRect(0, 0, 1, 1);
    parsed.fillStyle = colour;
    parsed.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = parsed.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, bottom) => [0, 1, 2].map((i) => top[i] * top[3] + bottom[i] * (1 - top[3])).concat(1);
  const luminance = (colour) => colour.slice(0, 3).map((part) => part / 255)
    .map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, i) => sum + part * [0.2126, 0.7152, 0.0722][i], 0);
  const ratio = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const background = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) {
      const layer = rgba(getComputedStyle(at).backgroundColor);
      if (layer[3] > 0) layers.push(layer);
      if (layer[3] === 1) break;
    }
    return layers.reduceRight((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const name = (element) => `${element.tagName.toLowerCase()}.${[...element.classList].join(".")} `
    + `"${(element.textContent || element.getAttribute("aria-label") || "").trim().slice(0, 40)}"`;
  const still = document.createElement("style"); // where things are when they have moved
  still.textContent = "* { scroll-behavior: auto !important; transition: none !important; }";
  document.head.append(still);
  let before = null;
  let first = null;
  return {
    formulas() {
      const all = [...document.querySelectorAll(".math")];
      const failed = all.filter((one) => !one.querySelector("mjx-container") || one.querySelector("[data-mjx-error], [data-mml-node=merror]"));
      return { set: all.length - failed.length, failed: failed.map((one) => one.textContent.slice(0, 80)) };
    },
    contrast() {
      const known = new Map();
      let least = 21;
      const faint = new Set();
      const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.data.trim() || !element.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
        if (element.closest("svg, script, style, mjx-assistive-mml")) continue;
        const style = getComputedStyle(element);
        const key = `${element.tagName} ${element.className} ${element.parentElement.className} ${style.color}`;
        if (!known.has(key)) {
          const below = background(element);
          const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && style.fontWeight >= 700);
          const found = ratio(over(rgba(style.color), below), below);
          known.set(key, found);
          least = Math.min(least, found);
          if (found < (large ? 3 : 4.5)) faint.add(`${found.toFixed(2)} ${name(element)} ${style.color}`);
        }
      }
      return { least, faint: [...faint].slice(0, 8) };
    },
    focus() {
      const at = document.activeElement;
      const style = getComputedStyle(at);
      const box = at.getBoundingClientRect();
      const drawn = (style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== "none";
      const onPage = at === document.body || (box.width > 0 && box.height > 0 && box.bottom > 0 && box.right > 0
        && box.top < innerHeight && box.left < innerWidth);
      first ??= at;
      const back = Boolean(before && at !== first && at !== document.body && before !== document.body
        && before.compareDocumentPosition(at) & Node.DOCUMENT_POSITION_PRECEDING
        && !(before.compareDocumentPosition(at) & Node.DOCUMENT_POSITION_CONTAINS));
      before = at;
      return { what: name(at), seen: at === document.body || (drawn && onPage), back };
    },
    overflow() {
      const around = [document.documentElement];
      for (let at = document.querySelector("article, .content"); at; at = at.parentElement) around.push(at);
      const beyond = Math.max(...around.map((one) => one.scrollWidth - one.clientWidth));
      const scrolls = (one) => ["auto", "scroll", "hidden"].includes(getComputedStyle(one).overflowX);
      const wide = [...document.querySelectorAll("article *")].filter((one) => {
        if (one.getBoundingClientRect().right <= innerWidth + 1) return false;
        for (let at = one.parentElement; at && at.tagName !== "ARTICLE"; at = at.parentElement) if (scrolls(at)) return false;
        return true;
      });
      return { beyond, what: wide.slice(0, 3).map(name).join("; ") };
    },
  };
})();
