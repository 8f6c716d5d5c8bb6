// Applies the saved theme before the first paint.

(() => {
  const theme = localStorage.getItem("toolrack.theme");
  if (theme === "light" || theme === "dark") {
    document.documentElement.dataset.theme = theme;
  }
})();
