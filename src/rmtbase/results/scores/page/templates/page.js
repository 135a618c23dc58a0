"use strict";

for (const box of document.querySelectorAll(".score-table")) {
  const texts = JSON.parse(box.querySelector("script").textContent);
  const at = (column, k) => column[column.length === 1 ? 0 : k];
  const body = box.querySelector("tbody");
  const headers = [...box.querySelectorAll("tr.columns th")];
  const [select, only, status] = ["select", "input", "[role=status]"].map((one) => box.querySelector(one));
  const rows = [...body.rows];
  const fixed = headers.length - texts[select.value].cells.length;
  const zColumn = fixed + 2;

  // A cell's number: "−1.2e−4", "≤ 2e−5", "0.79 ± 0.02" and "median 3e4" are read, "–" (none) is NaN, "∞" is infinite.
  const numeric = (text) => {
    const plain = text.replaceAll("−", "-").replace(/≤|median/, "").split(" ± ")[0].trim();
    return plain.endsWith("∞") ? (plain.startsWith("-") ? -Infinity : Infinity) : Number(plain || NaN);
  };

  const show = () => {
    const cells = texts[select.value].cells.map((column) => column.split("|"));
    const colour = texts[select.value].colour;
    rows.forEach((row, k) => {
      cells.forEach((column, j) => {
        const cell = row.cells[fixed + j];
        if (fixed + j === zColumn) {
          cell.lastChild.textContent = at(column, k);
          cell.firstChild.className = `z${colour[k]}`;
        } else {
          cell.textContent = at(column, k);
        }
      });
    });
    box.querySelector(".statistic").textContent = select.selectedOptions[0].textContent;
  };

  const filter = () => {
    for (const row of rows) row.classList.toggle("aside", only.checked && !("flagged" in row.dataset));
    const shown = rows.filter((row) => !row.classList.contains("aside")).length;
    status.textContent = `${shown} of ${rows.length} rows`;
  };

  const sort = (column, direction) => {
    const isText = headers[column].classList.contains("text");
    const sign = direction === "ascending" ? 1 : -1;
    const keys = new Map(rows.map((row, k) => {
      const text = row.cells[column].textContent;
      return [row, [isText ? text : numeric(text), k]];
    }));
    const ordered = [...rows].sort((a, b) => {
      const [[x, i], [y, j]] = [keys.get(a), keys.get(b)];
      if (isText) return sign * x.localeCompare(y) || i - j;
      if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || i - j; // none: last
      return x === y ? i - j : sign * (x < y ? -1 : 1);
    });
    body.append(...ordered);
    headers.forEach((header, j) => header.setAttribute("aria-sort", j === column ? direction : "none"));
  };

  const sorted = () => headers.findIndex((header) => (header.getAttribute("aria-sort") ?? "none") !== "none");

  headers.forEach((header, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = header.textContent;
    header.replaceChildren(button);
    header.dataset.title = button.textContent; // for paper
    header.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      sort(column, header.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
    });
  });
  select.addEventListener("change", () => {
    show();
    const column = sorted();
    if (column >= fixed) sort(column, headers[column].getAttribute("aria-sort"));
  });
  only.addEventListener("change", filter);
  const whole = box.querySelector(".controls button");
  whole.addEventListener("click", () => {
    whole.setAttribute("aria-pressed", String(box.classList.toggle("whole")));
  });
  show();
  filter();
  box.querySelector(".controls").hidden = false;
}

// What is wider than the window says so.
for (const box of document.querySelectorAll(".scroll")) {
  const hint = box.parentElement.querySelector(":scope > .hint");
  const resized = new ResizeObserver(() => {
    hint.style.display = box.scrollWidth > box.clientWidth ? "block" : "none";
  });
  resized.observe(box);
  resized.observe(box.firstElementChild); // another statistic makes another width
}

// On paper nothing can be opened or scrolled.
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
