"use strict";
(() => {
  const filter = document.getElementById("filter");
  const lines = [...document.querySelectorAll("article.line")];
  if (!filter || !lines.length) return;
  filter.hidden = false;
  const rest = document.querySelector(".chapter details");
  const { kind, writer, words } = filter.elements;
  const told = filter.querySelector("output");
  const texts = new Map(lines.map((line) => [line, line.textContent.toLowerCase()]));
  const apply = () => {
    const wanted = words.value.trim().toLowerCase();
    const filtering = Boolean(kind.value || (writer && writer.value) || wanted);
    let count = 0;
    for (const line of lines) {
      const fits = (!kind.value || line.dataset.kinds.split(" ").includes(kind.value))
        && (!writer || !writer.value || line.dataset.writer === writer.value)
        && (!wanted || texts.get(line).includes(wanted));
      line.hidden = !fits;
      count += fits ? 1 : 0;
    }
    for (const pointer of document.querySelectorAll(".pointer")) pointer.hidden = filtering;
    for (const chapter of document.querySelectorAll(".chapter")) {
      chapter.hidden = !chapter.querySelector("article.line:not([hidden])");
    }
    if (rest && filtering) rest.open = true;
    told.textContent = filtering ? `${count} of ${lines.length} lines` : `${lines.length} lines`;
  };
  const visible = () => lines.filter((line) => line.checkVisibility());
  const walk = (by) => {
    const shown = visible();
    if (!shown.length) return;
    const own = document.activeElement.closest("article.line");
    let next = shown.indexOf(own) + by;
    if (!own) {
      const top = filter.getBoundingClientRect().bottom;
      const first = shown.findIndex((line) => line.getBoundingClientRect().top >= top);
      next = by > 0 ? Math.max(first, 0) : (first > 0 ? first : shown.length) - 1;
    }
    const line = shown[Math.min(Math.max(next, 0), shown.length - 1)];
    line.focus({ preventScroll: true });
    line.scrollIntoView({ block: "nearest" });
  };
  for (const line of lines) line.tabIndex = -1;
  filter.addEventListener("input", apply);
  filter.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const reading = Boolean(document.activeElement.closest("article.line"));
    // On a layout without Latin letters, the key in the same place.
    const letter = /^[a-z]$/i.test(event.key) ? event.key : event.code;
    if (["j", "KeyJ"].includes(letter) || (reading && event.key === "ArrowDown")) walk(1);
    else if (["k", "KeyK"].includes(letter) || (reading && event.key === "ArrowUp")) walk(-1);
    else if (event.key === "/" || letter === "Slash") words.focus();
    else return;
    event.preventDefault();
  });
  apply();
})();
