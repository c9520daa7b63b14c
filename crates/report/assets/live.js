// Keeps a page up to date whose run goes on: it asks for the state once a second, replaces the sections that differ, and
// becomes the report when the run has ended. A closed page asks no more.
"use strict";
(() => {
  const EVERY_MS = 1000;
  const PATIENCE = 5;
  const note = document.getElementById("live");
  const main = document.querySelector("main");
  let version = 0;
  let failures = 0;
  // The sections as they were served: key, markup, and element.
  let sections = [];

  const parse = (markup) => {
    const template = document.createElement("template");
    template.innerHTML = markup;
    return [...template.content.children];
  };

  // Sections that the reader has unfolded stay so.
  const unfoldAs = (node, old) => {
    const open = [...old.querySelectorAll("details")].map((one) => one.open);
    [...node.querySelectorAll("details")].forEach((one, at) => { one.open = open[at] ?? one.open; });
  };

  const update = (markup) => {
    const before = sections;
    sections = parse(markup).map((node) => {
      const key = node.id || node.localName;
      const html = node.outerHTML;
      const old = before.find((one) => one.key === key);
      if (old?.html === html) return old;
      if (old) unfoldAs(node, old.node);
      return { key, html, node };
    });
    const isSame = before.length === sections.length && sections.every(({ key }, at) => key === before[at].key);
    if (!isSame) return main.replaceChildren(...sections.map(({ node }) => node));
    sections.forEach(({ node }, at) => { if (node !== before[at].node) before[at].node.replaceWith(node); });
  };

  const show = (next) => {
    document.querySelector("header").replaceWith(...parse(next.header));
    update(next.main);
    document.dispatchEvent(new CustomEvent("charts", { detail: next.charts }));
  };

  const step = async () => {
    try {
      const answer = await fetch(`state?since=${version}`, { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      const next = await answer.json();
      failures = 0;
      note.hidden = true;
      version = next.version;
      if (next.report) {
        document.open();
        document.write(next.report);
        document.close();
        return;
      }
      if (next.main) show(next);
    } catch {
      failures += 1;
      note.hidden = false;
      if (failures >= PATIENCE) {
        note.textContent = "The process that ran this has ended. This is what was known last.";
        return;
      }
    }
    setTimeout(step, EVERY_MS);
  };
  step();
})();
