// What the theme leaves out for people who use a keyboard or a screen reader.
function mend() {
  // A table that is wider than the page scrolls; so that it can be scrolled by keys, too, it takes the focus.
  document.querySelectorAll(".md-typeset__scrollwrap:not([tabindex])").forEach((wrap) => {
    wrap.tabIndex = 0;
    wrap.setAttribute("role", "group");
    wrap.setAttribute("aria-label", "Table");
  });
  document.querySelectorAll(".md-code__nav").forEach((nav, index) => nav.setAttribute("aria-label", `Code ${index + 1}`));
}
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
mend();
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true }); // the theme wraps tables when it pleases
