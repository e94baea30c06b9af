"use strict";
(() => {
  const filter = document.getElementById("filter");
  const findings = [...document.querySelectorAll("details.finding")];
  if (!filter || !findings.length) return;
  filter.hidden = false;
  const chosen = (name) => [...filter.querySelectorAll(`input[name="${name}"]:checked`)].map((box) => box.value);
  const code = filter.querySelector("select");
  const shown = filter.querySelector("output");
  const apply = () => {
    const kinds = chosen("kind");
    const splits = chosen("split");
    let count = 0;
    for (const finding of findings) {
      const own = finding.dataset.splits.split(" ").filter((split) => split);
      const fits = kinds.includes(finding.dataset.kind)
        && (!code.value || finding.dataset.code === code.value)
        && (!own.length || own.some((split) => splits.includes(split)));
      finding.hidden = !fits;
      count += fits ? 1 : 0;
      for (const figure of finding.querySelectorAll("figure")) {
        figure.hidden = Boolean(figure.dataset.split) && !splits.includes(figure.dataset.split);
      }
    }
    shown.textContent = `${count} of ${findings.length} kinds of findings`;
  };
  filter.addEventListener("change", apply);
  window.addEventListener("beforeprint", () => findings.forEach((finding) => { finding.open = true; }));
  apply();
})();
