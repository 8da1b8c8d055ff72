"""The recorded scenes of the documentation: of the version that psring writes, listed in both indexes, and the same when they
are recorded again."""

import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import unittest

from support import BIN, ProgramTest

ROOT = pathlib.Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs/scenes"


def load_script():
    loader = importlib.machinery.SourceFileLoader("scenes", str(ROOT / "scripts/scenes"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("scenes", loader))
    sys.modules["scenes"] = module
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


SCRIPT = load_script()


def same_everywhere(document):
    """Leaves out what depends on the processor, whose kernels round differently, and numbers of lines, which move with each
    change of a source."""
    if isinstance(document, list):
        return [same_everywhere(one) for one in document]
    if isinstance(document, dict):
        varying = ("loss", "values", "model_sha256", "line", "text")
        return {key: same_everywhere(value) for key, value in document.items() if key not in varying}
    return document


class Scenes(ProgramTest):
    def test_files_and_indexes(self):
        self.assertEqual(sorted(path.name for path in FOLDER.glob("*.json")), sorted(scene.file for scene in SCRIPT.SCENES))
        self.assertEqual((FOLDER / "README.md").read_text(), SCRIPT.index(False))
        self.assertEqual((FOLDER / "README.zh-CN.md").read_text(), SCRIPT.index(True))
        for scene in SCRIPT.SCENES:
            with self.subTest(scene.name):
                text = (FOLDER / scene.file).read_text()
                document = json.loads(text)
                self.assertLessEqual(len(text.encode()), SCRIPT.MOST_BYTES)
                self.assertEqual((document["format"], document["version"]), ("psring-scene", 1))
                self.assertEqual(document["command"][-len(scene.arguments):], scene.arguments)
                for one in document["scenes"]:
                    self.assertNotIn("error", one)
                    self.assertTrue(one["sources"])

    def test_recorded_again(self):
        for name in ("ddp-and-zero1", "kills-ps"):
            with self.subTest(name):
                scene = next(one for one in SCRIPT.SCENES if one.name == name)
                SCRIPT.record(scene, BIN / "psring", self.folder)
                again = json.loads((self.folder / scene.file).read_text())
                committed = json.loads((FOLDER / scene.file).read_text())
                self.assertEqual(same_everywhere(again), same_everywhere(committed), f"scripts/scenes {name} records it anew")

    def test_a_page_of_several(self):
        files = ",".join(str(FOLDER / f"{name}.json") for name in ("ps", "zero-stages"))
        self.assert_done(self.run_program("psring", "step", "--scene", files, "--out", "page.html"))
        self.assertIn("worker/exchange/", (self.folder / "page.html").read_text())


if __name__ == "__main__":
    unittest.main()
