// The buttons that change language and theme.

import { h } from "./dom.js";
import { isDark, languageNow, switchLanguage, switchTheme } from "./preferences.js";

/// `again(id)` draws the page in the new language or theme, and gives the focus to the element with this id. `others` stand
/// before these buttons.
export const preferenceButtons = (t, again, ...others) => h("div", { class: "tools" }, others,
  h("button", { type: "button", id: "language", lang: languageNow() === "zh" ? "en" : "zh", onclick: () => {
    switchLanguage();
    again("language");
  } }, t.language),
  h("button", { type: "button", id: "theme", onclick: () => {
    switchTheme();
    again("theme");
  } }, isDark() ? t.light : t.dark));
