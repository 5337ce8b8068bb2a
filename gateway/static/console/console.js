// Comfort only: every page works without it.
for (const button of document.querySelectorAll("button[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.querySelector(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent.trim());
      button.textContent = "Copied";
    } catch {
      // Plain http has no clipboard: the text is selected for the keyboard.
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C or ⌘C";
    }
  });
}
document.querySelector(".note.bad[role=alert]")?.focus();
