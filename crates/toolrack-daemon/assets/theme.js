// The theme that somebody chose, put in place before anything is painted.

(() => {
  const chosen = localStorage.getItem("toolrack.theme");
  if (chosen === "light" || chosen === "dark") {
    document.documentElement.dataset.theme = chosen;
  }
})();
