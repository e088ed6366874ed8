"use strict";
(function () {
  // Elements with the same data-c are one candidate. Point: highlight it everywhere. Click: keep it.
  var box = document.getElementById("picked"), kept = null, shown = null;
  function all(c) { return document.querySelectorAll('[data-c="' + c + '"]'); }
  function describe(c) {
    var row = document.getElementById("c" + c);
    if (!row) { return ""; }
    var heads = row.closest("table").querySelectorAll("th"), parts = [];
    row.querySelectorAll("td").forEach(function (cell, n) {
      var text = cell.textContent.trim();
      if (text) { parts.push(n ? heads[n].textContent + " " + text : text); }
    });
    return parts.join(" · ");
  }
  function show(c) {
    if (c === shown) { return; }
    if (shown !== null) { all(shown).forEach(function (one) { one.classList.remove("on"); }); }
    shown = c;
    document.body.classList.toggle("choosing", c !== null);
    if (c !== null) { all(c).forEach(function (one) { one.classList.add("on"); }); }
    box.textContent = c === null ? "" : describe(c);
    box.hidden = !box.textContent;
  }
  function at(event) {
    var mark = event.target.closest ? event.target.closest("[data-c]") : null;
    return mark ? mark.getAttribute("data-c") : null;
  }
  function keep(c) { kept = c === kept ? null : c; show(kept); }
  document.addEventListener("pointerover", function (event) { var c = at(event); show(c === null ? kept : c); });
  document.addEventListener("click", function (event) { var c = at(event); if (c !== null) { keep(c); } });
  document.addEventListener("focusin", function (event) { var c = at(event); if (c !== null) { show(c); } });
  document.addEventListener("keydown", function (event) {
    if (event.key === "Escape") { kept = null; show(null); }
    if (event.key === "Enter") { var c = at(event); if (c !== null) { keep(c); } }
  });
  document.querySelectorAll("tr[data-c]").forEach(function (row) { row.tabIndex = 0; });
  document.querySelectorAll(".hint").forEach(function (one) { one.hidden = false; });
})();
