"use strict";
(() => {
  const form = document.getElementById("judging");
  const figures = [...document.querySelectorAll("figure[data-id]")];
  if (!form || !figures.length) return;
  form.hidden = false;
  const lines = Number(form.dataset.lines), first = Number(form.dataset.first);
  const key = `dsocr-audit:${form.dataset.name}:${lines}`;
  const load = () => { try { return JSON.parse(localStorage.getItem(key)) || {}; } catch { return {}; } };
  const given = Object.fromEntries(figures.map((figure) => [figure.dataset.id, figure.dataset.wrong]));
  const answers = { ...given };
  // What was answered here counts until the files say something else than they did then.
  for (const [id, [answer, before]] of Object.entries(load())) if (given[id] === before) answers[id] = answer;
  let at = 0;

  // P(X <= wrong) of n lines at this share, and the shares at which it is 2.5 and 97.5 % (Clopper and Pearson 1934).
  const below = (wrong, n, share) => {
    let term = Math.pow(1 - share, n), sum = term;
    for (let k = 1; k <= wrong; k += 1) { term *= ((n - k + 1) / k) * (share / (1 - share)); sum += term; }
    return sum;
  };
  const solve = (wrong, n, probability) => {
    let low = 0, high = 1;
    for (let step = 0; step < 60; step += 1) {
      const middle = (low + high) / 2;
      if (below(wrong, n, middle) > probability) low = middle; else high = middle;
    }
    return low;
  };
  const count = () => {
    let judged = figures.map((figure) => answers[figure.dataset.id]);
    const gap = judged.findIndex((answer) => !answer);
    if (gap >= 0) judged = judged.slice(0, gap);
    if (judged.length < Math.min(first, lines)) return "";
    const sum = (part) => part.filter((answer) => answer === "yes").length;
    const head = sum(judged.slice(0, first)), drawn = judged.slice(first), wrong = sum(drawn);
    const rest = lines - Math.min(first, lines), n = drawn.length;
    let low = wrong, high = wrong;
    if (n < rest) {
      low = Math.max(wrong, Math.floor(rest * (wrong ? solve(wrong - 1, n, 0.975) : 0)));
      high = Math.ceil(rest * (wrong < n ? solve(wrong, n, 0.025) : 1));
    }
    const sample = n ? `, and ${wrong} of ${n} drawn from the others` : "";
    return `${head} of the first ${Math.min(first, lines)} texts are wrong${sample}: `
      + `${head + low} to ${head + high} of ${lines} (exact binomial 95 % interval).`;
  };
  const show = (scroll) => {
    figures.forEach((figure, place) => {
      figure.dataset.wrong = answers[figure.dataset.id];
      figure.classList.toggle("current", place === at);
    });
    const done = figures.filter((figure) => answers[figure.dataset.id]).length;
    form.querySelector("output").textContent = `${done} of ${figures.length} judged.`;
    const sentence = count();
    if (sentence) document.getElementById("count").textContent = sentence;
    if (scroll) figures[at].scrollIntoView({ block: "center" });
  };
  const judge = (answer) => {
    if (!answer && !answers[figures[at].dataset.id]) at = Math.max(0, at - 1);
    answers[figures[at].dataset.id] = answer;
    if (answer) at = Math.min(figures.length - 1, at + 1);
    const kept = Object.entries(answers).map(([id, own]) => [id, [own, given[id]]]);
    try { localStorage.setItem(key, JSON.stringify(Object.fromEntries(kept))); } catch { /* judged in this window only */ }
    show(true);
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    // On a layout without Latin letters, the key in the same place.
    const letter = /^[a-z]$/i.test(event.key) ? event.key : event.code.replace("Key", "");
    const answer = { r: "no", w: "yes", u: "" }[letter.toLowerCase()];
    if (answer !== undefined) judge(answer);
  });
  for (const button of form.querySelectorAll("button[data-answer]")) {
    button.addEventListener("click", () => judge(button.dataset.answer));
  }
  form.querySelector("button.save").addEventListener("click", () => {
    const quote = (text) => `"${text.replaceAll('"', '""')}"`;
    const rows = figures.map((figure) => `${quote(figure.dataset.id)},${answers[figure.dataset.id]}`);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([`id,wrong\n${rows.join("\n")}\n`], { type: "text/csv" }));
    link.download = "judged.csv";
    link.click();
  });
  at = Math.max(0, figures.findIndex((figure) => !answers[figure.dataset.id]));
  show(false);
})();
