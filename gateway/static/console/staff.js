/* Names that the theme leaves out: to a screen reader an icon is letters, and a button with an icon alone is nothing. */
const describe = () => {
  for (const icon of document.querySelectorAll(".material-symbols-outlined")) icon.ariaHidden = "true";
  document.getElementById("searchbar-submit")?.setAttribute("aria-label", "Search");
  for (const shown of document.querySelectorAll(".select2-selection__rendered")) {
    const field = shown.id.slice("select2-".length, -"-container".length);
    const name = document.querySelector(`label[for="${field}"]`)?.innerText.replace("*", "").trim() ?? field;
    for (const part of [shown, shown.closest(".select2-selection")]) part.ariaLabel = name;
  }
};
// The theme makes its selects when the page is ready, some after this script.
addEventListener("load", () => setTimeout(describe));
addEventListener("htmx:afterSwap", describe);
// By default a form that is swapped in is htmx's own only 20 ms later: Enter before that leaves the page.
htmx.config.defaultSettleDelay = 0;
// The theme looks at the system's colours only when a page loads; Alpine keeps a choice of the person's own.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ({ matches }) => {
  if (JSON.parse(localStorage.getItem("_x_adminTheme") ?? '"auto"') === "auto") document.documentElement.classList.toggle("dark", matches);
});
