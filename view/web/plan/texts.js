// The texts of the page by language.

import { en } from "./texts_en.js";
import { zh } from "./texts_zh.js";

export const kTexts = { en, zh };
