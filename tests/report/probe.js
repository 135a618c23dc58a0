// Runs in a test's copy of a page and leaves what it saw in an element named probe.
window.addEventListener("load", () => {
  const box = document.querySelector("#heads-table");
  const headers = [...box.querySelectorAll("tr.columns th")];
  const titles = headers.map((header) => header.textContent);
  const column = (title) => [...box.querySelectorAll("tbody tr")].map(
    (row) => row.cells[titles.indexOf(title)].textContent);
  const press = (title) => {
    const button = headers[titles.indexOf(title)].querySelector("button");
    button.focus();
    const focused = document.activeElement === button;
    button.click();
    return { focused, sort: headers[titles.indexOf(title)].getAttribute("aria-sort"), column: column(title) };
  };
  const seen = {};
  seen.figures = [...document.querySelectorAll("figure svg")].filter((svg) => svg.clientWidth).map((svg) => {
    const { width, height } = svg.getBoundingClientRect();
    return { width, height, marks: svg.querySelectorAll("path, use").length };
  });
  seen.titles = titles;
  seen.ascending = press("z");
  seen.descending = press("z");
  seen.text = press("farthest statistic");
  const select = box.querySelector("select");
  select.value = "stable_rank";
  select.dispatchEvent(new Event("change"));
  seen.chosen = box.querySelector(".statistic").textContent;
  seen.observed = press("observed").column;
  const filter = box.querySelector("input");
  filter.click();
  seen.filtered = [...box.querySelectorAll("tbody tr")].filter((row) => row.offsetParent !== null).length;
  seen.status = box.querySelector("[role=status]").textContent;
  box.querySelector(".scroll").scrollTop = 60;
  seen.sticky = box.querySelector("thead").getBoundingClientRect().top - box.querySelector(".scroll").getBoundingClientRect().top;
  filter.click();
  const scroll = box.querySelector(".scroll");
  box.querySelector(".controls button").click();
  seen.whole = { pressed: box.querySelector(".controls button").getAttribute("aria-pressed"),
    hidden: scroll.scrollHeight - scroll.clientHeight };
  seen.on_paper = headers.map((header) => header.dataset.title);
  seen.width = innerWidth;
  seen.dark = matchMedia("(prefers-color-scheme: dark)").matches;
  seen.background = getComputedStyle(document.body).backgroundColor;
  seen.text_colour = getComputedStyle(document.body).color;
  seen.figure_colours = [...new Set([...document.querySelectorAll("figure svg *")].map(
    (mark) => getComputedStyle(mark).fill))];
  seen.overflow = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  seen.hacked = "hacked" in window;
  seen.counts = Object.fromEntries(["meta", "img", "script", "link", "iframe", "object", "base", "form"].map(
    (tag) => [tag, document.querySelectorAll(tag).length]));
  seen.links = [...document.querySelectorAll("[href]")].map((one) => one.getAttribute("href"));
  seen.title = document.title;
  seen.cells = [...document.querySelectorAll("#matrices-table tbody tr")].map(
    (row) => [row.cells[0].textContent, row.cells[1].textContent]);
  setTimeout(() => { // when the page has seen what the presses changed
    seen.tables = [...document.querySelectorAll(".score-table .scroll")].map((table) => [
      table.scrollWidth > table.clientWidth, getComputedStyle(table.parentElement.querySelector(".hint")).display === "block"]);
    const probe = document.createElement("pre");
    probe.id = "probe";
    probe.textContent = JSON.stringify(seen);
    document.body.append(probe);
  }, 200);
});
