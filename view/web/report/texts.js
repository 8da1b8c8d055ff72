// The texts of the page by language.

import { en } from "./texts/en.js";
import { zh } from "./texts/zh.js";

export const kTexts = { en, zh };
