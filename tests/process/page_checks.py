"""What tests ask of every page: that its figures can be saved, and that its texts can be read."""

import csv
import io
import xml.etree.ElementTree

# Clicks the buttons of a figure, and returns the texts that they would save, by figure.
SAVED = """(async () => {
  const blobs = [];
  const [make, click] = [URL.createObjectURL, HTMLAnchorElement.prototype.click];
  URL.createObjectURL = (blob) => (blobs.push(blob), 'blob:null/0');
  HTMLAnchorElement.prototype.click = () => {};
  const saved = {};
  for (const figure of document.querySelectorAll('figure')) {
    if (figure.hidden || figure.closest('[hidden]')) continue;
    blobs.length = 0;
    figure.querySelectorAll('.head button').forEach((one) => one.click());
    saved[figure.id] = await Promise.all(blobs.map((blob) => blob.text()));
  }
  URL.createObjectURL = make;
  HTMLAnchorElement.prototype.click = click;
  return saved;
})()"""

# Texts, of elements and of drawings, whose contrast with what lies behind them is less than 4.5:1. A disabled button, and
# text on a bar, which has a colour of its own, do not count.
PALE = """(() => {
  const parts = (colour) => (colour.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const over = (top, back) => { const a = top[3] ?? 1; return [0, 1, 2].map((i) => top[i] * a + back[i] * (1 - a)); };
  const luminance = (c) => c.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    const list = [];
    for (let one = node; one; one = one.parentElement) list.push(parts(getComputedStyle(one).backgroundColor));
    return list.reverse().reduce((back, one) => over(one, back), [255, 255, 255]);
  };
  const faded = (node) => { let all = 1; for (let one = node; one; one = one.parentElement) all *= Number(getComputedStyle(one).opacity); return all; };
  const bad = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !node.getClientRects().length || node.closest('script, style, title, button:disabled, option, [pointer-events="none"]')) continue;
    const style = getComputedStyle(node);
    const back = behind(node);
    const colour = parts(node instanceof SVGElement ? style.fill : style.color);
    const seen = over([...colour.slice(0, 3), (colour[3] ?? 1) * faded(node)], back);
    const [light, dark] = [luminance(seen), luminance(back)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    if (ratio < 4.5) bad.push(`${ratio.toFixed(2)} ${node.tagName} ${walk.currentNode.data.trim().slice(0, 40)}`);
  }
  return [...new Set(bad)];
})()"""

# The elements that Tab has to reach; and the element that has the focus: its number, whether it shows that, and its text.
CONTROLS = "[...document.querySelectorAll('a[href], button:not(:disabled), select, input:not([hidden]), summary, [tabindex=\"0\"]')].filter((one) => one.getClientRects().length).length"
FOCUSED = """(() => {
  const one = document.activeElement;
  if (!one || one === document.body) return null;
  const mark = one.matches('.kill') ? one.querySelector('rect') : one;
  const style = getComputedStyle(mark);
  window.seen ??= new Map();
  if (!window.seen.has(one)) window.seen.set(one, window.seen.size);
  const isSeen = (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || (mark !== one && style.stroke !== 'none');
  return [window.seen.get(one), isSeen, `${one.tagName}#${one.id} ${one.textContent.slice(0, 30)}`];
})()"""


def check_saved_figures(test, browser, least):
    """Every figure can be saved as SVG, without a reference to the page, and as CSV, whose rows are as long as its head."""
    saved = browser.run(SAVED)
    test.assertGreaterEqual(len(saved), least)
    for name, files in saved.items():
        with test.subTest(name):
            test.assertEqual(len(files), 2)
            drawing = xml.etree.ElementTree.fromstring(files[0])
            test.assertEqual(drawing.tag, "{http://www.w3.org/2000/svg}svg")
            for word in ("var(", "NaN", "undefined", "Infinity", "[object"):
                test.assertNotIn(word, files[0])
                test.assertNotIn(word, files[1])
            rows = list(csv.reader(io.StringIO(files[1])))
            test.assertGreater(len(rows), 1)
            test.assertEqual({len(row) for row in rows}, {len(rows[0])})
    return saved


def check_contrast(test, browser):
    test.assertEqual(browser.run(PALE), [])


def check_keyboard(test, browser):
    """Tab reaches every control, and each shows that it has the focus."""
    count = browser.run(CONTROLS)
    browser.run("(() => { window.seen = new Map(); document.activeElement.blur(); })()")
    reached = {}
    for _ in range(2 * count + 2):
        browser.press("Tab")
        found = browser.run(FOCUSED)
        if found is None:
            continue  # between the page's end and its begin
        number, is_seen, name = found
        test.assertTrue(is_seen, f"{name} has the focus, and does not show it")
        if number in reached and len(reached) == count:
            break
        reached[number] = name
    test.assertEqual(len(reached), count, reached)
