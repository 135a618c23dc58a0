// The theme opens its two drawers, which hold the pages and the contents on narrow screens, by a mouse or a finger alone.
document.addEventListener("DOMContentLoaded", () => {
  const drawers = [["__navigation", ".nav-overlay-icon", ".sidebar-drawer"], ["__toc", ".toc-overlay-icon", ".toc-drawer"]];
  const close = drawers.map(([id, icons, drawer]) => {
    const box = document.getElementById(id);
    const buttons = [...document.querySelectorAll(`label${icons}`)];
    const tell = () => buttons.forEach((one) => one.setAttribute("aria-expanded", box.checked));
    const toggle = () => { box.checked = !box.checked; box.dispatchEvent(new Event("change")); };
    box.addEventListener("change", tell);
    tell();
    for (const one of buttons) {
      one.tabIndex = 0;
      one.setAttribute("role", "button");
      one.setAttribute("aria-label", box.getAttribute("aria-label"));
      one.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle();
        const stops = [...document.querySelectorAll(`${drawer} :is(a[href], input:not([type=hidden]))`)];
        if (box.checked) stops.find((one) => one.checkVisibility({ visibilityProperty: true }))?.focus();
      });
    }
    return () => {
      if (!box.checked) return;
      toggle();
      buttons.find((one) => one.checkVisibility())?.focus();
    };
  });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") close.forEach((one) => one()); });
});
