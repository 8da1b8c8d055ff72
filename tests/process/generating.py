"""What the tests of psring generate share: a text, models that are trained on it, and the tokens that they choose."""

import json

from support import ProgramTest

MODEL = "gpt:layers=2,dim=64,heads=4,context=64,vocab=256"
SENTENCES = ["the cat sat on the mat. ", "a dog ran to the old barn. ", "when it rains, the river rises. ",
             "she said: it's 12 o'clock! ", "the mat is on the floor of the barn. "]


def text_of(sentences):
    """A text whose sentences follow each other in an order that looks random."""
    state, text = 1, ""
    for _ in range(sentences):
        state = state * 1103515245 + 12345 & 0x7FFFFFFF
        text += SENTENCES[(state >> 16) % len(SENTENCES)]
    return text


class GenerateTest(ProgramTest):
    def trained(self, *more, model=MODEL, data="text:corpus.txt", out="run", steps=120):
        if not (self.folder / "corpus.txt").exists():
            (self.folder / "corpus.txt").write_text(text_of(2500))
        self.assert_done(self.train("--strategy", "single", "--model", model, "--data", data, "--global-batch", 8, "--optimizer",
                                    "adamw", "--lr", "0.003", "--steps", steps, "--seed", 1, "--out", out, *more))
        return f"{out}/model.safetensors"

    def generate(self, *arguments):
        result = self.run_program("psring", "generate", "--json", *arguments)
        self.assert_done(result)
        return json.loads(result.out)

    def tokens(self, *arguments):
        return [sequence["tokens"] for sequence in self.generate(*arguments)["sequences"]]
