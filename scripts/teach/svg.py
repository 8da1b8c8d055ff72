"""Draws the small charts of the lessons as SVG: text stays text, and colours suit a light and a dark page."""

from xml.sax.saxutils import escape

COLOURS = {
    "forward": "#4c78a8", "backward": "#f58518", "update": "#54a24b", "wait": "#d0d0d0", "transfer": "#b279a2",
    "parameters": "#4c78a8", "gradients": "#f58518", "optimizer": "#54a24b", "activations": "#9d9d9d",
    "communication": "#b279a2", "paused": "#fbdcbc", "line": "#4c78a8", "line2": "#e45756", "line3": "#54a24b",
}
CHINESE = {
    "forward": "前向", "backward": "反向", "update": "更新", "wait": "等待", "transfer": "传送",
    "parameters": "参数", "gradients": "梯度", "optimizer": "优化器状态", "activations": "激活值", "communication": "通信缓冲",
    "worker": "worker", "server": "server", "round": "第 {} 轮", "bytes": "字节", "MiB": "MiB", "KiB": "KiB", "ms": "毫秒",
    "exposed": "暴露的通信", "step": "一步", "rank": "rank", "paused": "被故障拖慢", "weights": "权重", "KV cache": "KV cache", "overhead": "其他开销",
    "idle": "{}：每个阶段空闲 {:.1f} %", "stage": "阶段 {}",
}
ENGLISH = {"round": "round {}", "exposed": "exposed communication", "optimizer": "optimizer state", "step": "a step", "paused": "slowed by the fault",
           "idle": "{}: each stage is idle for {:.1f} %", "stage": "stage {}"}


class Drawing:
    """Collects elements; y grows downwards, units are pixels."""

    def __init__(self, width, height, language, title):
        self.width, self.height, self.language, self.title = width, height, language, title
        self.parts = []

    def say(self, word):
        return CHINESE.get(word, word) if self.language == "zh" else ENGLISH.get(word, word)

    def box(self, x, y, width, height, colour, tip=""):
        tip = f"<title>{escape(tip)}</title>" if tip else ""
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.3):.1f}" height="{height:.1f}" fill="{colour}">{tip}</rect>')

    def line(self, x1, y1, x2, y2, colour="#8a8a8a", width=1, marker=False):
        end = ' marker-end="url(#arrow)"' if marker else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"{end}/>')

    def path(self, points, colour):
        text = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{text}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in points:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>')

    def text(self, x, y, words, size=12, anchor="start", weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" font-weight="{weight}">'
                          f"{escape(words)}</text>")

    def label(self, x, y, words):
        """A row's label that ends at x; a long one takes two lines."""
        first, _, second = words.partition(" ") if len(words) > 18 else (words, "", "")
        self.text(x, y if not second else y - 7, first, anchor="end")
        if second:
            self.text(x, y + 8, second, 10 if len(second) > 20 else 12, anchor="end")

    def legend(self, x, y, names):
        for name in names:
            self.box(x, y - 9, 10, 10, COLOURS[name])
            words = self.say(name)
            self.text(x + 14, y, words)
            x += 24 + sum(12 if ord(letter) > 255 else 6.6 for letter in words)

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
                f'height="{self.height}" font-family="sans-serif" fill="#222" role="img">\n'
                f"<title>{escape(self.title)}</title>\n"
                '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
                '<path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>\n'
                '<rect width="100%" height="100%" fill="#ffffff"/>\n' + "\n".join(self.parts) + "\n</svg>\n")
