// All texts of the viewer. `event` makes {what, why} of one event's facts; see says.js.

import { en } from "./texts_en.js";
import { zh } from "./texts_zh.js";

export const kTexts = { en, zh };
