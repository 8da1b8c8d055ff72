// Search of the book: all words of the query have to occur, as parts of words, too, so that Chinese needs no segmentation.
// The index is part of this file, so that the book works from a folder without a server.
(function () {
  "use strict";
  function find(query) {
    const words = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return [];
    const found = [];
    for (const page of window.bookIndex) {
      const title = page.title.toLowerCase();
      const text = page.text.toLowerCase();
      if (!words.every((word) => title.includes(word) || text.includes(word))) continue;
      let score = 0;
      for (const word of words) score += (title.includes(word) ? 20 : 0) + Math.min(10, text.split(word).length - 1);
      found.push({ page, score, at: Math.max(0, text.indexOf(words[0])) });
    }
    return found.sort((a, b) => b.score - a.score).slice(0, 30);
  }
  function show(list, base, results, query) {
    list.replaceChildren();
    if (!results.length && query) list.append("—");
    for (const { page, at } of results) {
      const item = document.createElement("article");
      const heading = document.createElement("h3");
      const link = document.createElement("a");
      link.href = base + page.location;
      link.textContent = page.title;
      heading.append(link);
      const text = document.createElement("p");
      text.textContent = page.text.slice(Math.max(0, at - 40), at + 160);
      item.append(heading, text);
      list.append(item);
    }
  }
  document.addEventListener("DOMContentLoaded", function () {
    const shown = document.querySelector(".wy-menu-vertical a.current");
    if (shown) shown.scrollIntoView({ block: "center" });
    const input = document.getElementById("mkdocs-search-query");
    const list = document.getElementById("mkdocs-search-results");
    if (!input || !list) return;
    const base = typeof base_url === "undefined" ? "./" : base_url.replace(/\/?$/, "/");
    const search = () => show(list, base, find(input.value), input.value.trim());
    const asked = new URLSearchParams(location.search).get("q");
    if (asked) input.value = asked;
    input.addEventListener("input", search);
    search();
  });
})();
