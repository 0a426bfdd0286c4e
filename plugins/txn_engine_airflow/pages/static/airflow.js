// Links to Airflow's own pages. In Airflow these pages are framed, and a frame may not navigate its parent: Airflow's
// router is told the new place instead, as its own links do.

document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-airflow]");
  if (!link || event.defaultPrevented || event.button !== 0 || event.ctrlKey || event.metaKey || event.shiftKey) return;
  if (window.parent === window) return;
  try {
    window.parent.history.pushState(null, "", link.href);
    window.parent.dispatchEvent(new PopStateEvent("popstate", { state: null }));
    event.preventDefault();
  } catch {
    // Another origin frames us: the link is an ordinary one then.
  }
});
