// Before anything is painted: the theme the reader chose last time, where the browser lets a page remember.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("phylatent-theme"); } catch { chosen = null; }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
