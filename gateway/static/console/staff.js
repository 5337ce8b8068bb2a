/* Names for screen readers that the theme lacks. They would read an icon's letters, and find no name for its button. */
const describe = () => {
  for (const icon of document.querySelectorAll(".material-symbols-outlined")) icon.ariaHidden = "true";
  document.getElementById("searchbar-submit")?.setAttribute("aria-label", "Search");
  for (const shown of document.querySelectorAll(".select2-selection__rendered")) {
    const field = shown.id.slice("select2-".length, -"-container".length);
    const name = document.querySelector(`label[for="${field}"]`)?.innerText.replace("*", "").trim() ?? field;
    for (const part of [shown, shown.closest(".select2-selection")]) part.ariaLabel = name;
  }
};
// The theme creates its selects when the page is ready, some of them after this script has run.
addEventListener("load", () => setTimeout(describe));
addEventListener("htmx:afterSwap", describe);
// By default htmx takes over a swapped form only after 20 ms. Until then, Enter would leave the page.
htmx.config.defaultSettleDelay = 0;
// The theme reads the system's colour scheme only when a page loads. Alpine stores the user's own choice.
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", ({ matches }) => {
  if (JSON.parse(localStorage.getItem("_x_adminTheme") ?? '"auto"') === "auto") document.documentElement.classList.toggle("dark", matches);
});
