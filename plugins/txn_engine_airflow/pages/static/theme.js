// Airflow keeps the colour mode in localStorage ("light", "dark", "system"), and says it on <html> of its own page.
// This runs before the first paint, and again when either changes.
(function () {
  "use strict";
  var dark = window.matchMedia("(prefers-color-scheme: dark)");

  function stored() {
    try {
      return window.localStorage.getItem("theme");
    } catch (refused) {
      return null; // storage is off: the system's own mode is as good
    }
  }

  function apply() {
    var mode = stored();
    if (mode !== "light" && mode !== "dark") mode = dark.matches ? "dark" : "light";
    document.documentElement.dataset.theme = mode;
  }

  apply();
  dark.addEventListener("change", apply);
  window.addEventListener("storage", apply);
  try {
    if (window.parent !== window) {
      new MutationObserver(apply).observe(window.parent.document.documentElement, { attributes: true });
    }
  } catch (foreign) {
    // Framed by a page of another origin: there is nothing to follow.
  }
})();
