// The reader's language and theme: from the address (#lang=zh&theme=dark), from the last visit, or from the browser.

export const hash = new URLSearchParams(location.hash.slice(1));

// A browser may refuse storage to a page that was opened from a file.
function kept(name) {
  try {
    return localStorage.getItem(`psring-${name}`);
  } catch {
    return null;
  }
}
function keep(name, value) {
  try {
    localStorage.setItem(`psring-${name}`, value);
  } catch {
    // It is forgotten with the page.
  }
}

const dark = matchMedia("(prefers-color-scheme: dark)");
let language = (hash.get("lang") ?? kept("lang") ?? navigator.language).startsWith("zh") ? "zh" : "en";
let theme = hash.get("theme") ?? kept("theme");  // null: as the system says

export const languageNow = () => language;
export const isDark = () => (theme ? theme === "dark" : dark.matches);

export function switchLanguage() {
  language = language === "zh" ? "en" : "zh";
  keep("lang", language);
}
export function switchTheme() {
  theme = isDark() ? "light" : "dark";
  keep("theme", theme);
}

/// Writes both to the document's root element, where the style sheet reads them.
export function apply() {
  document.documentElement.setAttribute("data-theme", isDark() ? "dark" : "light");
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
}
export const onSystemTheme = (listener) => dark.addEventListener("change", listener);
